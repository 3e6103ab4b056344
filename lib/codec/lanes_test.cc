// SPDX-License-Identifier: Apache-2.0
#include "codec/lanes.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "base/random.h"

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

}  // namespace
}  // namespace spillway::codec
