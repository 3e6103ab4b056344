// SPDX-License-Identifier: Apache-2.0
#include "codec/block_code.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "codec/sample_data.h"
#include "codec/shared_scale.h"

namespace spillway::codec {
namespace {

constexpr std::size_t kLength = 1000;
using Rows = std::vector<std::vector<float>>;

float shared_scale(const Rows& rows) {
  float scale = 0.0F;
  for (const auto& row : rows) {
    scale = larger_scale(scale, measure_block(row));
  }
  return scale;
}

std::vector<std::uint32_t> sum_of(const BlockCode& code, const Rows& rows, float scale) {
  std::vector<std::uint32_t> sums(rows[0].size());
  std::vector<std::uint32_t> numbers(sums.size());
  for (const auto& row : rows) {
    encode_block(code, row, scale, numbers);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i] += numbers[i];
    }
  }
  return sums;
}

std::vector<float> decoded(const BlockCode& code, const std::vector<std::uint32_t>& sums,
                           float scale, unsigned contributors, double weight) {
  std::vector<float> values(sums.size());
  decode_block_sums(code, sums, scale, contributors, weight, values);
  return values;
}

Rows rows_of(unsigned ranks) {
  Rows rows;
  for (unsigned rank = 0; rank < ranks; ++rank) {
    rows.push_back(lognormal_values(kLength, rank + 1));
  }
  return rows;
}

TEST(BlockCode, NumbersOfAllContributorsAddUpWithinALane) {
  EXPECT_EQ(BlockCode::for_contributors(1).precision, 30U);
  EXPECT_EQ(BlockCode::for_contributors(8).precision, 27U);
  EXPECT_EQ(BlockCode::for_contributors(128).precision, 23U);
  for (unsigned ranks = 1; ranks <= kMaxContributors; ++ranks) {
    const BlockCode code = BlockCode::for_contributors(ranks);
    ASSERT_TRUE(LaneLayout::make(ranks, code.largest()).ok()) << ranks;
    ASSERT_FALSE(LaneLayout::make(ranks, code.largest() * 2).ok() && code.precision < 30) << ranks;
  }
}

TEST(BlockCode, SumsAreOffByAtMostHalfAStepOfEachRank) {
  for (const unsigned ranks : {1U, 2U, 3U, 8U, 31U, 128U}) {
    const Rows rows = rows_of(ranks);
    const BlockCode code = BlockCode::for_contributors(ranks);
    const float scale = shared_scale(rows);
    const auto sums = decoded(code, sum_of(code, rows, scale), scale, ranks, ranks);
    const double step = std::ldexp(1.0, std::ilogb(scale) + 1 - static_cast<int>(code.precision));
    for (std::size_t i = 0; i < kLength; ++i) {
      double exact = 0.0;
      for (const auto& row : rows) {
        exact += row[i];
      }
      ASSERT_NEAR(sums[i], exact, ranks * step / 2 + std::fabs(exact) * 6e-8) << ranks;
    }
  }
}

TEST(BlockCode, LosesNextToNothing) {
  const Rows rows = rows_of(8);
  const BlockCode code = BlockCode::for_contributors(8);
  const float scale = shared_scale(rows);
  std::vector<float> mean(kLength);
  for (std::size_t i = 0; i < kLength; ++i) {
    double sum = 0.0;
    for (const auto& row : rows) {
      sum += row[i];
    }
    mean[i] = static_cast<float>(sum / 8);
  }
  EXPECT_LT(nmse(decoded(code, sum_of(code, rows, scale), scale, 8, 1.0), mean), 1e-13);
}

TEST(BlockCode, AnySubsetDecodesToItsOwnMean) {
  const Rows rows = rows_of(8);
  const BlockCode code = BlockCode::for_contributors(8);
  const float scale = shared_scale(rows);
  const Rows some(rows.begin() + 2, rows.begin() + 3);
  const auto alone = decoded(code, sum_of(code, some, scale), scale, 1, 1.0);
  EXPECT_LT(nmse(alone, rows[2]), 1e-13);
  EXPECT_EQ(decoded(code, std::vector<std::uint32_t>(kLength), scale, 0, 1.0),
            std::vector<float>(kLength));
}

TEST(BlockCode, IntegersBelowThePrecisionAreExact) {
  std::vector<float> integers(kLength);
  for (std::size_t i = 0; i < kLength; ++i) {
    integers[i] = static_cast<float>(i) - 500.0F;
  }
  const BlockCode code = BlockCode::for_contributors(128);
  const Rows rows(128, integers);
  const auto sums = decoded(code, sum_of(code, rows, 500.0F), 500.0F, 128, 128);
  for (std::size_t i = 0; i < kLength; ++i) {
    EXPECT_EQ(sums[i], 128.0F * integers[i]);
  }
}

TEST(BlockCode, TheWholeFloatRangeWorks) {
  for (const float factor : {1e-45F, 1e-40F, 1e-30F, 1e+30F, 3e+38F}) {
    const std::vector<float> row = {factor, -factor, factor / 2, 0.0F};
    const BlockCode code = BlockCode::for_contributors(4);
    const float scale = measure_block(row);
    std::vector<std::uint32_t> numbers(4);
    EXPECT_EQ(encode_block(code, row, scale, numbers), 0U);
    EXPECT_EQ(decoded(code, numbers, scale, 1, 1.0), row) << factor;
  }
}

TEST(BlockCode, ZeroAndNonFiniteBlocksAreTold) {
  const std::vector<float> zeros(4);
  EXPECT_EQ(measure_block(zeros), 0.0F);
  EXPECT_TRUE(std::isnan(measure_block(std::vector<float>{1.0F, NAN, 2.0F})));
  EXPECT_TRUE(std::isnan(measure_block(std::vector<float>{-INFINITY, 1.0F})));
  const BlockCode code = BlockCode::for_contributors(2);
  std::vector<std::uint32_t> numbers(4);
  EXPECT_EQ(encode_block(code, zeros, 0.0F, numbers), 0U);
  EXPECT_EQ(decoded(code, numbers, 0.0F, 1, 1.0), zeros);
  for (const float value : decoded(code, numbers, NAN, 1, 1.0)) {
    EXPECT_TRUE(std::isnan(value));
  }
}

TEST(BlockCode, WhatIsBeyondAPredictedScaleIsClampedAndCounted) {
  const std::vector<float> row = {1.0F, 2.0F, 3.0F, -100.0F, NAN};
  const BlockCode code = BlockCode::for_contributors(2);
  std::vector<std::uint32_t> numbers(row.size());
  EXPECT_EQ(encode_block(code, row, 1.5F, numbers), 3U);  // 3, -100 and NaN; the power is 2
  for (const std::uint32_t number : numbers) {
    EXPECT_LE(number, code.largest());
  }
  const auto values = decoded(code, numbers, 1.5F, 1, 1.0);
  EXPECT_EQ(values[0], 1.0F);
  EXPECT_EQ(values[1], 2.0F);
  EXPECT_EQ(values[2], 2.0F);
  EXPECT_EQ(values[3], -2.0F);
}

}  // namespace
}  // namespace spillway::codec
