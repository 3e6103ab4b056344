// SPDX-License-Identifier: Apache-2.0
#include "codec/lanes.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"
#include "codec/block_code.h"
#include "codec/sample_data.h"

namespace spillway::codec {
namespace {

using Words = std::array<std::uint64_t, kChunkWords>;

std::vector<std::uint32_t> random_numbers(std::size_t count, std::uint32_t largest,
                                          std::uint64_t seed) {
  base::RandomSequence random(seed);
  std::vector<std::uint32_t> numbers(count);
  for (std::uint32_t& number : numbers) {
    number = static_cast<std::uint32_t>(random.next_below(std::uint64_t{largest} + 1));
  }
  return numbers;
}

TEST(LaneLayout, HasTheMostLanesThatSumsFit) {
  EXPECT_EQ(*LaneLayout::make(8, 30), (LaneLayout{8, 8}));
  EXPECT_EQ(*LaneLayout::make(17, 15), (LaneLayout{8, 8}));  // 255
  EXPECT_EQ(*LaneLayout::make(8, 32), (LaneLayout{9, 7}));   // 256
  EXPECT_EQ(*LaneLayout::make(1, 1), (LaneLayout{1, 64}));
  EXPECT_EQ(*LaneLayout::make(128, 511), (LaneLayout{16, 4}));
  EXPECT_EQ(*LaneLayout::make(8, 1U << 28), (LaneLayout{32, 2}));
  EXPECT_EQ(LaneLayout::make(8, 30)->values_per_chunk(), 1344U);
  EXPECT_EQ(LaneLayout::make(8, 30)->chunks_for(1344), 1U);
  EXPECT_EQ(LaneLayout::make(8, 30)->chunks_for(1345), 2U);
  EXPECT_EQ(LaneLayout::make(8, 30)->chunks_for(0), 0U);
}

TEST(LaneLayout, RefusesWhatWouldOverflow) {
  EXPECT_TRUE(LaneLayout::make(1, UINT32_MAX).ok());
  EXPECT_EQ(LaneLayout::make(2, UINT32_MAX).status().code(), base::StatusCode::kInvalidArgument);
  EXPECT_EQ(LaneLayout::make(16, 1U << 28).status().code(), base::StatusCode::kInvalidArgument);
  EXPECT_FALSE(LaneLayout::make(0, 5).ok());
  EXPECT_FALSE(LaneLayout::make(5, 0).ok());
}

TEST(Lanes, NumberStandsInItsLaneOfItsWord) {
  const LaneLayout layout{9, 7};
  std::vector<std::uint32_t> numbers(layout.values_per_chunk());
  numbers[3 * kChunkWords + 5] = 0x1FF;
  Words words;
  pack_chunk(layout, numbers, words);
  for (std::size_t i = 0; i < kChunkWords; ++i) {
    EXPECT_EQ(words[i], i == 5 ? std::uint64_t{0x1FF} << 27 : 0);
  }
}

TEST(Lanes, EveryLengthComesBackAndTheRestIsZero) {
  for (const LaneLayout layout : {LaneLayout{1, 64}, LaneLayout{5, 12}, LaneLayout{8, 8},
                                  LaneLayout{16, 4}, LaneLayout{32, 2}}) {
    const auto largest = static_cast<std::uint32_t>((std::uint64_t{1} << layout.bits) - 1);
    for (const std::size_t length :
         {std::size_t{0}, std::size_t{1}, kChunkWords - 1, kChunkWords, kChunkWords + 1,
          layout.values_per_chunk() - 1, layout.values_per_chunk()}) {
      const auto numbers = random_numbers(length, largest, length);
      Words words;
      words.fill(~std::uint64_t{0});
      pack_chunk(layout, numbers, words);
      std::vector<std::uint32_t> back(layout.values_per_chunk(), 77);
      unpack_chunk(layout, words, back);
      for (std::size_t i = 0; i < back.size(); ++i) {
        ASSERT_EQ(back[i], i < length ? numbers[i] : 0U);
      }
      std::vector<std::uint32_t> first(length);
      unpack_chunk(layout, words, first);
      ASSERT_EQ(first, numbers);
    }
  }
}

// Compares the sum of packed words with packed sums.
void expect_words_add(unsigned ranks, std::uint32_t largest) {
  const LaneLayout layout = *LaneLayout::make(ranks, largest);
  std::vector<std::uint32_t> sums(layout.values_per_chunk());
  Words added{};
  for (unsigned rank = 0; rank < ranks; ++rank) {
    auto numbers = random_numbers(sums.size(), largest, rank);
    numbers[0] = largest;  // one lane is as full as possible
    numbers[kChunkWords - 1] = 0;
    Words words;
    pack_chunk(layout, numbers, words);
    for (std::size_t i = 0; i < kChunkWords; ++i) {
      added[i] += words[i];
    }
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i] += numbers[i];
    }
  }
  Words packed;
  pack_chunk(layout, sums, packed);
  EXPECT_EQ(added, packed) << ranks << " of " << largest;
  std::vector<std::uint32_t> unpacked(sums.size());
  unpack_chunk(layout, added, unpacked);
  EXPECT_EQ(unpacked, sums) << ranks << " of " << largest;
}

TEST(Lanes, AddingWordsAddsNumbers) {
  for (unsigned ranks = 1; ranks <= 128; ++ranks) {
    for (const std::uint32_t largest : {1U, 3U, 15U, 30U, 255U, 3855U}) {
      expect_words_add(ranks, largest);
    }
  }
}

TEST(Lanes, SumsThatFillTheirLanesDoNotCarry) {
  for (unsigned bits = 2; bits <= 32; ++bits) {
    const std::uint64_t full = (std::uint64_t{1} << bits) - 1;
    for (const unsigned ranks : {3U, 5U, 17U}) {
      if (full / ranks > 0) {
        expect_words_add(ranks, static_cast<std::uint32_t>(full / ranks));
      }
    }
  }
}

// ------------------------------------------------------------------ the shared scale

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kMost = std::numeric_limits<float>::max();

TEST(SharedScale, IsTheLargerAndNanIsTheLargest) {
  EXPECT_EQ(larger_scale(1.0F, 2.0F), 2.0F);
  EXPECT_EQ(larger_scale(1e-45F, 0.0F), 1e-45F);
  EXPECT_EQ(larger_scale(kMost, 1e-30F), kMost);
  EXPECT_TRUE(std::isnan(larger_scale(kNan, kMost)));
  EXPECT_TRUE(std::isnan(larger_scale(0.0F, kNan)));
}

TEST(SharedScale, PredictsOnlyFromAScaleThatWasOne) {
  EXPECT_EQ(predict_scale(2.0F, 1.25F), 2.5F);
  EXPECT_EQ(predict_scale(0.0F, 1.25F), 0.0F);
  EXPECT_EQ(predict_scale(kNan, 1.25F), 0.0F);
  EXPECT_EQ(predict_scale(kMost, 1.25F), 0.0F);
}

TEST(SharedScale, SpecialScalesAreZeroAndNan) {
  EXPECT_TRUE(is_special_scale(0.0F));
  EXPECT_TRUE(is_special_scale(kNan));
  EXPECT_FALSE(is_special_scale(1e-45F));
}

// ------------------------------------------------------------------ blocks

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
