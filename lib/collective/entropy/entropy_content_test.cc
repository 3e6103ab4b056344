// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/random.h"
#include "collective/entropy/entropy_content.h"

namespace spillway::collective {

namespace {

std::vector<float> gaussian_values(std::size_t count, std::uint64_t seed) {
  base::RandomSequence random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(random.next_gaussian());
  }
  return values;
}

TEST(EntropyNumbers, TheNearestIsAtMostHalfAUnitAway) {
  for (const unsigned precision : {2U, 5U, 8U, 16U}) {
    const std::vector<float> values = gaussian_values(1000, precision);
    const NumberCode code(precision, measure_magnitudes(values).largest);
    std::vector<std::int32_t> numbers(values.size());
    std::vector<float> back(values.size());
    code.round_to_nearest(values, numbers);
    code.values_of(numbers, 1.0, back);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_LE(std::abs(numbers[i]), code.largest_number());
      ASSERT_LE(std::abs(back[i] - values[i]), 0.51 * code.unit()) << precision;
    }
  }
}

TEST(EntropyNumbers, AtRandomTheyAreRightOnAverage) {
  const std::vector<float> values = gaussian_values(130, 3);
  const NumberCode code(3, measure_magnitudes(values).largest);
  std::vector<std::int32_t> numbers(values.size());
  std::vector<double> mean(values.size());
  constexpr int kDraws = 2000;
  for (std::uint32_t draw = 0; draw < kDraws; ++draw) {
    code.round_at_random(values, 17, draw, numbers);
    for (std::size_t i = 0; i < values.size(); ++i) {
      mean[i] += numbers[i] * code.unit() / kDraws;
    }
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(mean[i], values[i], 0.06 * code.unit());  // five deviations
  }
}

TEST(EntropyNumbers, WhatIsBeyondTheScaleIsClippedAndCounted) {
  const NumberCode code(8, 1.0F);
  const std::vector<float> values = {0.5F, 2.0F, -3.0F, 1.0F};
  std::vector<std::int32_t> numbers(values.size());
  EXPECT_EQ(code.round_to_nearest(values, numbers), 2U);
  EXPECT_EQ(numbers, (std::vector<std::int32_t>{64, 127, -127, 127}));
}

TEST(EntropyNumbers, SpecialScalesAreZerosAndNan) {
  const std::vector<float> values = {0.0F, std::numeric_limits<float>::infinity()};
  EXPECT_TRUE(std::isnan(measure_magnitudes(values).largest));
  EXPECT_EQ(measure_magnitudes(std::vector<float>(3)).largest, 0.0F);
  std::vector<std::int32_t> numbers(2, 5);
  std::vector<float> back(2);
  const NumberCode nan(8, std::nanf(""));
  nan.round_at_random(values, 1, 1, numbers);
  EXPECT_EQ(numbers, std::vector<std::int32_t>(2));
  nan.values_of(numbers, 0.5, back);
  EXPECT_TRUE(std::isnan(back[0]) && std::isnan(back[1]));
  const NumberCode zero(8, 0.0F);
  zero.round_to_nearest(values, numbers);
  zero.values_of(numbers, 1.0, back);
  EXPECT_EQ(back, std::vector<float>(2));
}

// The reciprocal of so small a unit is not a float.
TEST(EntropyNumbers, TinyValuesAreAsPreciseAsOthers) {
  for (const unsigned precision : {2U, 8U, 16U}) {
    for (const double magnitude : {1e-35, 1e-37, 1e-38, 2e-39, 1e-41}) {
      std::vector<float> values = gaussian_values(1000, precision);
      for (float& value : values) {
        value = static_cast<float>(value * magnitude);
      }
      const NumberCode code(precision, measure_magnitudes(values).largest);
      std::vector<std::int32_t> nearest(values.size());
      std::vector<std::int32_t> at_random(values.size());
      EXPECT_LE(code.round_to_nearest(values, nearest),
                1U);  // the largest, by the factor's rounding
      code.round_at_random(values, 17, 1, at_random);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double exact = values[i] / code.unit();
        ASSERT_LE(std::abs(nearest[i] - exact), 0.51) << precision << " bits of " << magnitude;
        ASSERT_LE(std::abs(at_random[i] - exact), 1.01) << precision << " bits of " << magnitude;
      }
    }
  }
}

TEST(EntropyNumbers, ATinyScaleClipsWhatIsFarBeyondIt) {
  const NumberCode code(8, std::numeric_limits<float>::denorm_min());
  const std::vector<float> values = {1.0F, -std::numeric_limits<float>::max()};
  std::vector<std::int32_t> numbers(values.size());
  EXPECT_EQ(code.round_to_nearest(values, numbers), 2U);
  EXPECT_EQ(numbers, (std::vector<std::int32_t>{127, -127}));
}

TEST(EntropyNumbers, ScalesAtTheEndsOfTheRangeDoNoHarm) {
  for (const float scale :
       {std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::max()}) {
    const NumberCode code(2, scale);
    const std::vector<float> values = {scale, -scale, 0.0F};
    std::vector<std::int32_t> numbers(values.size());
    std::vector<float> back(values.size());
    code.round_to_nearest(values, numbers);
    code.values_of(numbers, 1.0, back);
    EXPECT_EQ(back[2], 0.0F);
    EXPECT_LE(std::abs(back[0]), scale);
  }
}

}  // namespace

}  // namespace spillway::collective
