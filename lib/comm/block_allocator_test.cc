// SPDX-License-Identifier: Apache-2.0
#include "comm/block_allocator.h"

#include <gtest/gtest.h>

#include <map>

#include "base/random.h"

namespace spillway::runtime {
namespace {

constexpr std::size_t kPage = BlockAllocator::kGrain;

TEST(BlockAllocator, GivesTheLowestPlaceThatIsLongEnough) {
  BlockAllocator blocks(8 * kPage);
  EXPECT_EQ(blocks.take(kPage), 0U);
  EXPECT_EQ(blocks.take(2 * kPage), kPage);
  EXPECT_EQ(blocks.take(1), 3 * kPage);
  EXPECT_TRUE(blocks.give_back(0));
  EXPECT_EQ(blocks.take(2 * kPage), 4 * kPage) << "one page is not enough for two";
  EXPECT_EQ(blocks.take(kPage), 0U);
}

TEST(BlockAllocator, JoinsWhatWasGivenBackInAnyOrder) {
  BlockAllocator blocks(3 * kPage);
  for (const std::size_t last : {0U, 1U, 2U}) {
    for (std::size_t i = 0; i < 3; ++i) {
      ASSERT_EQ(blocks.take(kPage), i * kPage);
    }
    EXPECT_FALSE(blocks.take(1));
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(blocks.give_back((last + 1 + i) % 3 * kPage));
    }
    EXPECT_EQ(blocks.taken_bytes(), 0U);
    EXPECT_EQ(blocks.take(3 * kPage), 0U) << last;
    EXPECT_TRUE(blocks.give_back(0));
  }
}

TEST(BlockAllocator, RefusesWhatCannotBe) {
  BlockAllocator blocks(2 * kPage);
  EXPECT_FALSE(blocks.take(0));
  EXPECT_FALSE(blocks.take(2 * kPage + 1));
  EXPECT_FALSE(blocks.take(SIZE_MAX));
  EXPECT_FALSE(blocks.give_back(0));
  ASSERT_EQ(blocks.take(2 * kPage), 0U);
  EXPECT_FALSE(blocks.give_back(kPage)) << "inside a block is not a block";
  EXPECT_TRUE(blocks.give_back(0));
  EXPECT_FALSE(blocks.give_back(0));
  EXPECT_FALSE(BlockAllocator(kPage - 1).take(1));
}

TEST(BlockAllocator, NeverGivesTwiceWhatIsTaken) {
  constexpr std::size_t kPages = 64;
  BlockAllocator blocks(kPages * kPage);
  std::map<std::size_t, std::size_t> taken;  // pages by offset
  base::RandomSequence random(7);
  for (int i = 0; i < 20'000; ++i) {
    const std::size_t pages = 1 + random.next_below(12);
    if (random.next_unit() < 0.5 && !taken.empty()) {
      const auto any = std::next(taken.begin(), static_cast<long>(random.next_below(taken.size())));
      ASSERT_TRUE(blocks.give_back(any->first));
      taken.erase(any);
    } else if (const auto offset = blocks.take(pages * kPage)) {
      const auto next = taken.lower_bound(*offset);
      ASSERT_TRUE(next == taken.end() || *offset + pages * kPage <= next->first);
      ASSERT_TRUE(next == taken.begin() ||
                  std::prev(next)->first + std::prev(next)->second * kPage <= *offset);
      ASSERT_LE(*offset + pages * kPage, kPages * kPage);
      taken.emplace(*offset, pages);
    }
  }
  for (const auto& [offset, pages] : taken) {
    EXPECT_TRUE(blocks.give_back(offset));
  }
  EXPECT_EQ(blocks.take(kPages * kPage), 0U);
}

}  // namespace
}  // namespace spillway::runtime
