// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "comm/local_memory.h"

namespace spillway::comm {

namespace {

std::vector<std::uint8_t> counted_bytes(std::size_t count, unsigned first = 0) {
  std::vector<std::uint8_t> bytes(count);
  std::iota(bytes.begin(), bytes.end(), static_cast<std::uint8_t>(first));
  return bytes;
}

net::UniqueFd forged_memory(std::size_t bytes, int seals, unsigned flags = MFD_ALLOW_SEALING) {
  net::UniqueFd fd(::memfd_create("forged", MFD_CLOEXEC | flags));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  if (seals != 0) {
    EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  }
  return fd;
}

TEST(LocalSegment, AReaderSeesWhatWasStaged) {
  auto own = OwnSegment::make();
  ASSERT_TRUE(own.ok()) << own.status().message();
  const auto shared = SharedSegment::open(own->descriptor());
  ASSERT_TRUE(shared.ok()) << shared.status().message();
  const auto first = counted_bytes(10'000);
  const auto second = counted_bytes(70'000, 3);
  const auto at_first = own.value().stage(first);
  const auto at_second = own.value().stage(second);
  ASSERT_TRUE(at_first && at_second);
  std::vector<std::uint8_t> got(first.size());
  EXPECT_TRUE(shared->read(*at_first, got));
  EXPECT_EQ(got, first);
  got.resize(second.size());
  EXPECT_TRUE(shared->read(*at_second, got));
  EXPECT_EQ(got, second);
  own.value().release(*at_first);
  own.value().release(*at_second);
  EXPECT_EQ(own->staged_bytes(), 0U);
}

TEST(LocalSegment, IsReadInsideOrNotAtAll) {
  auto own = OwnSegment::make();
  ASSERT_TRUE(own.ok());
  const auto shared = SharedSegment::open(own->descriptor());
  ASSERT_TRUE(shared.ok());
  std::vector<std::uint8_t> to(100, 7);
  EXPECT_TRUE(shared->read(kSegmentBytes - 100, to));
  EXPECT_EQ(to, std::vector<std::uint8_t>(100, 0));
  to.assign(100, 7);
  for (const std::uint64_t offset :
       {std::uint64_t{kSegmentBytes - 99}, std::uint64_t{kSegmentBytes}, UINT64_MAX,
        UINT64_MAX - 50, std::uint64_t{1} << 63}) {
    EXPECT_FALSE(shared->read(offset, to)) << offset;
  }
  EXPECT_EQ(to, std::vector<std::uint8_t>(100, 7));
}

TEST(LocalSegment, IsFullAtSomePointAndRoomAgainWhenReleased) {
  auto own = OwnSegment::make();
  ASSERT_TRUE(own.ok());
  const std::vector<std::uint8_t> quarter(kSegmentBytes / 4, 1);
  std::vector<std::uint64_t> places;
  while (const auto place = own.value().stage(quarter)) {
    places.push_back(*place);
  }
  EXPECT_EQ(places.size(), 4U);
  EXPECT_FALSE(own.value().stage({quarter.data(), 1}));
  own.value().release(places[2]);
  EXPECT_EQ(own.value().stage(quarter), places[2]);
  EXPECT_EQ(own->memory_bytes(), kSegmentBytes);
}

TEST(LocalSegment, TakesMemoryOnlyAsFarAsItWasUsed) {
  auto own = OwnSegment::make();
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(own->memory_bytes(), 0U);
  const auto bytes = counted_bytes(512 * 1024);
  for (int i = 0; i < 100; ++i) {
    const auto place = own.value().stage(bytes);
    ASSERT_TRUE(place);
    own.value().release(*place);
  }
  EXPECT_LE(own->memory_bytes(), std::size_t{1} << 20);
}

TEST(LocalSegment, NobodyButItsOwnerCanWriteOrResizeIt) {
  const auto own = OwnSegment::make();
  ASSERT_TRUE(own.ok());
  const int fd = own->descriptor().get();
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  EXPECT_NE(::ftruncate(fd, 0), 0);
  EXPECT_NE(::ftruncate(fd, kSegmentBytes * 2), 0);
  EXPECT_LT(::pwrite(fd, "x", 1, 0), 0);
  EXPECT_NE(::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
}

TEST(LocalSegment, WhatIsForgedIsNotMapped) {
  constexpr int kGood = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  EXPECT_TRUE(SharedSegment::open(forged_memory(kSegmentBytes, kGood)).ok());
  EXPECT_FALSE(SharedSegment::open(forged_memory(0, kGood)).ok());
  EXPECT_FALSE(SharedSegment::open(forged_memory(kSegmentBytes - 1, kGood)).ok());
  EXPECT_FALSE(SharedSegment::open(forged_memory(std::size_t{1} << 50, kGood)).ok());
  EXPECT_FALSE(SharedSegment::open(forged_memory(kSegmentBytes, 0)).ok()) << "unsealed";
  EXPECT_FALSE(SharedSegment::open(forged_memory(kSegmentBytes, 0, 0)).ok()) << "cannot be sealed";
  EXPECT_FALSE(SharedSegment::open(forged_memory(kSegmentBytes, F_SEAL_GROW | F_SEAL_SEAL)).ok());
  EXPECT_FALSE(SharedSegment::open(forged_memory(kSegmentBytes, F_SEAL_SHRINK | F_SEAL_GROW)).ok());
  EXPECT_FALSE(SharedSegment::open(net::UniqueFd(::open("/dev/zero", O_RDONLY | O_CLOEXEC))).ok());
  EXPECT_FALSE(SharedSegment::open(net::UniqueFd(::open("/", O_RDONLY | O_CLOEXEC))).ok());
  EXPECT_FALSE(SharedSegment::open(net::UniqueFd(::socket(AF_UNIX, SOCK_STREAM, 0))).ok());
  EXPECT_FALSE(SharedSegment::open(net::UniqueFd()).ok());
}

}  // namespace

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

}  // namespace spillway::comm
