// SPDX-License-Identifier: Apache-2.0
#include "tools/plot/axis.h"

#include <gtest/gtest.h>

#include <cmath>

namespace spillway::plot {
namespace {

constexpr Span kPixels = {100, 300};

TEST(Axis, ALinearOneBeginsAtZeroAndEndsAtARoundNumber) {
  const Axis axis = Axis::linear({3, 87}, kPixels);
  EXPECT_EQ(axis.ticks(), (std::vector<double>{0, 20, 40, 60, 80, 100}));
  EXPECT_DOUBLE_EQ(axis.position(0), 100);
  EXPECT_DOUBLE_EQ(axis.position(50), 200);
  EXPECT_DOUBLE_EQ(axis.position(100), 300);
}

TEST(Axis, ValuesBelowZeroHaveRoom) {
  const Axis axis = Axis::linear({-3, 1}, kPixels);
  EXPECT_EQ(axis.ticks().front(), -3);
  EXPECT_EQ(axis.ticks().back(), 1);
}

TEST(Axis, PositionsMayFall) {
  const Axis axis = Axis::linear({0, 10}, {300, 100});
  EXPECT_DOUBLE_EQ(axis.position(10), 100);
  EXPECT_DOUBLE_EQ(axis.position(5), 200);
}

TEST(Axis, ALogarithmicOneHasStepsWithinFewDecades) {
  const Axis axis = Axis::logarithmic({80, 474}, kPixels);
  EXPECT_EQ(axis.ticks(), (std::vector<double>{50, 100, 200, 500}));
  EXPECT_DOUBLE_EQ(axis.position(50), 100);
  EXPECT_DOUBLE_EQ(axis.position(500), 300);
  EXPECT_NEAR(axis.position(std::sqrt(50.0 * 500.0)), 200, 1e-9);
}

TEST(Axis, ALogarithmicOneHasDecadesOverMany) {
  const Axis axis = Axis::logarithmic({3e-5, 0.7}, kPixels);
  ASSERT_EQ(axis.ticks().size(), 6U);
  EXPECT_DOUBLE_EQ(axis.ticks().front(), 1e-5);
  EXPECT_DOUBLE_EQ(axis.ticks().back(), 1);
}

TEST(Axis, RoundEndsStayWhereTheyAre) {
  EXPECT_EQ(Axis::logarithmic({1, 100}, kPixels).ticks().back(), 100);
  EXPECT_EQ(Axis::linear({0, 1}, kPixels).ticks().back(), 1);
}

TEST(Axis, WhateverTheValuesTicksAreFewAndPositionsAreNumbers) {
  const double huge = std::numeric_limits<double>::max();
  const double infinite = std::numeric_limits<double>::infinity();
  for (const Extent& extent : {Extent(), Extent{5, 5}, Extent{0, 0}, Extent{-1, -1},
                               Extent{-huge, huge}, Extent{0, infinite}, Extent{1e-300, 1e-299}}) {
    for (const Axis& axis : {Axis::linear(extent, kPixels), Axis::logarithmic(extent, kPixels)}) {
      EXPECT_GE(axis.ticks().size(), 2U);
      EXPECT_LE(axis.ticks().size(), kMaxTicks);
      EXPECT_TRUE(std::is_sorted(axis.ticks().begin(), axis.ticks().end()));
      EXPECT_TRUE(std::isfinite(axis.position(1)));
      EXPECT_TRUE(std::isfinite(axis.position(0)));
    }
  }
}

TEST(Axis, LabelsAreShort) {
  EXPECT_EQ(tick_label(0), "0");
  EXPECT_EQ(tick_label(0.001), "0.001");
  EXPECT_EQ(tick_label(250), "250");
  EXPECT_EQ(tick_label(20'000), "20k");
  EXPECT_EQ(tick_label(1'500'000), "1.5M");
  EXPECT_EQ(tick_label(-20'000), "-20k");
}

}  // namespace
}  // namespace spillway::plot
