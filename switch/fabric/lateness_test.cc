// SPDX-License-Identifier: Apache-2.0
#include "switch/fabric/lateness.h"

#include <gtest/gtest.h>

namespace spillway::fabric {
namespace {

TEST(Lateness, OfNothingIsNothing) {
  EXPECT_EQ(Lateness().mean(), base::Duration());
  EXPECT_EQ(Lateness().percentile(99), base::Duration());
}

TEST(Lateness, APercentileIsAtMostAQuarterAboveTheTruth) {
  for (std::int64_t us = 1; us < 10'000'000; us = us * 21 / 20 + 1) {
    Lateness lateness;
    for (int i = 0; i < 99; ++i) {
      lateness.add(base::microseconds(us));
    }
    lateness.add(base::seconds(1'000));
    const double told = base::microseconds_of(lateness.percentile(99));
    EXPECT_GE(told, static_cast<double>(us));
    EXPECT_LE(told, 1.26 * static_cast<double>(us)) << us;
    EXPECT_EQ(lateness.latest(), base::seconds(1'000));
  }
}

TEST(Lateness, AddsUp) {
  Lateness one;
  Lateness other;
  one.add(base::microseconds(10));
  other.add(base::microseconds(30));
  other.add(base::microseconds(-5));  // early is on time
  one.add(other);
  EXPECT_EQ(one.count(), 3U);
  EXPECT_EQ(one.mean(), base::nanoseconds(40'000 / 3));
  EXPECT_EQ(one.latest(), base::microseconds(30));
  EXPECT_EQ(one.percentile(100), base::microseconds(30));
  EXPECT_LE(one.percentile(1), base::microseconds(1));
}

TEST(Lateness, WhatIsLaterThanAllBucketsIsInTheLast) {
  Lateness lateness;
  lateness.add(base::seconds(100'000));
  EXPECT_GT(lateness.percentile(50), base::seconds(100));
}

}  // namespace
}  // namespace spillway::fabric
