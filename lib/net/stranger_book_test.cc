// SPDX-License-Identifier: Apache-2.0
#include "net/stranger_book.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

namespace spillway::net {
namespace {

constexpr base::Instant kNow{base::seconds(100)};

TEST(StrangerBook, StrangersGetAShareOfTheDescriptorsAndOfTheMemory) {
  EXPECT_EQ(StrangerBook::most_of(1024, 1024), 128U);
  EXPECT_EQ(StrangerBook::most_of(UINT64_MAX, 64 * 1024), 1024U);
  EXPECT_EQ(StrangerBook::most_of(0, 1024), StrangerBook::kLeast);
  EXPECT_LE(StrangerBook::most_of(StrangerBook::files_of_process(), 1),
            std::max(StrangerBook::kLeast, StrangerBook::files_of_process() / 2));
}

TEST(StrangerBook, TheOldestSilentOneOfTheMostCrowdedSourceGoesFirst) {
  StrangerBook book(8);
  book.add(1, "a", kNow);
  book.add(2, "b", kNow);
  book.add(3, "b", kNow);
  for (StrangerBook::Id id = 4; id <= 7; ++id) {
    book.add(id, std::to_string(id), kNow);
  }
  EXPECT_TRUE(book.room_for("c", kNow).is_free);
  book.add(8, "8", kNow);
  EXPECT_EQ(book.room_for("c", kNow).leaves, 2U);
  book.answered(2);
  EXPECT_EQ(book.room_for("c", kNow).leaves, 3U);
  book.remove(3);
  EXPECT_TRUE(book.room_for("c", kNow).is_free);
}

TEST(StrangerBook, WhereEverySourceHasOneTheOldestSilentOneGoes) {
  StrangerBook book(3);
  book.add(1, "a", kNow);
  book.add(2, "b", kNow);
  book.add(3, "c", kNow);
  book.answered(1);
  EXPECT_EQ(book.room_for("d", kNow).leaves, 2U);
}

// All sockets of a process share one limit, and strangers at one socket do not close another.
TEST(StrangerBook, BooksOfAProcessShareItsPlaces) {
  StrangerBook::Shared shared{.strangers = 0, .most = 16};
  StrangerBook crowded(64, shared);
  StrangerBook other(64, shared);
  for (StrangerBook::Id id = 1; id <= 16; ++id) {
    ASSERT_TRUE(crowded.room_for(std::to_string(id), kNow).is_free);
    crowded.add(id, std::to_string(id), kNow);
  }
  EXPECT_EQ(crowded.room_for("more", kNow).leaves, 1U);
  for (StrangerBook::Id id = 1; id <= StrangerBook::kLeast; ++id) {
    ASSERT_TRUE(other.room_for(std::to_string(id), kNow).is_free);
    other.add(id, std::to_string(id), kNow);
  }
  EXPECT_FALSE(other.room_for("more", kNow).is_free);
  {
    const StrangerBook moved(std::move(crowded));
    EXPECT_EQ(shared.strangers, 16 + StrangerBook::kLeast);
  }
  EXPECT_EQ(shared.strangers, StrangerBook::kLeast);
  EXPECT_TRUE(other.room_for("more", kNow).is_free);
}

// A flooding host harms only itself, even if it says what a rank would.
TEST(StrangerBook, OneSourceHasItsShareAndNoMore) {
  StrangerBook book(8);
  book.add(1, "quiet", kNow);
  book.add(2, "flood", kNow);
  book.add(3, "flood", kNow);
  EXPECT_EQ(book.room_for("flood", kNow).leaves, 2U);
  book.answered(2);
  book.answered(3);
  const StrangerBook::Room none = book.room_for("flood", kNow);
  EXPECT_FALSE(none.is_free);
  EXPECT_FALSE(none.leaves.has_value());
  EXPECT_TRUE(book.room_for("quiet", kNow).is_free);
  // Answered ones are safe only for a while; then the newest goes.
  EXPECT_EQ(book.room_for("flood", kNow + StrangerBook::kAnsweredGrace).leaves, 3U);
}

TEST(StrangerBook, TheOwnerChoosesTheGraceOfTheAnswered) {
  StrangerBook::Shared shared{.strangers = 0, .most = 64};
  StrangerBook book(8, shared, base::milliseconds(20));
  book.add(1, "flood", kNow);
  book.add(2, "flood", kNow);
  book.answered(1);
  book.answered(2);
  EXPECT_FALSE(book.room_for("flood", kNow + base::milliseconds(19)).leaves.has_value());
  EXPECT_EQ(book.room_for("flood", kNow + base::milliseconds(20)).leaves, 2U);
}

// 200 peers behind one address prove themselves five times later than the grace lasts, and connect
// again and again, one every millisecond. There are 32 places.
TEST(StrangerBook, PeersOfOneAddressThatAnswerLateGetInOneAfterAnother) {
  constexpr StrangerBook::Id kPeers = 200;
  constexpr std::int64_t kAnswerMs = 100;
  constexpr std::int64_t kLimitMs = 10'000;
  StrangerBook::Shared shared{.strangers = 0, .most = 1024};
  StrangerBook book(128, shared, base::milliseconds(20));
  std::set<StrangerBook::Id> has_proved;            // peers
  std::map<StrangerBook::Id, std::int64_t> due_ms;  // peers that are connected
  std::int64_t ms = 0;
  for (; has_proved.size() < kPeers && ms < kLimitMs; ++ms) {
    const base::Instant now = kNow + base::milliseconds(ms);
    std::erase_if(due_ms, [&](const auto& connected) {
      if (connected.second > ms) {
        return false;
      }
      book.remove(connected.first);
      has_proved.insert(connected.first % kPeers);
      return true;
    });
    const auto id = static_cast<StrangerBook::Id>(ms);  // peer ms % kPeers
    if (has_proved.contains(id % kPeers)) {
      continue;
    }
    StrangerBook::Room room = book.room_for("one", now);
    if (room.leaves) {
      due_ms.erase(*room.leaves);
      book.remove(*room.leaves);
      room = book.room_for("one", now);
    }
    if (room.is_free) {
      book.add(id, "one", now);
      book.answered(id);
      due_ms[id] = ms + kAnswerMs;
    }
  }
  EXPECT_EQ(has_proved.size(), kPeers);
}

TEST(StrangerBook, WhereDescriptorsAreUsedUpTheMostCrowdedSourceLosesOne) {
  StrangerBook book(8);
  EXPECT_FALSE(book.first_to_leave(kNow).has_value());
  book.add(1, "quiet", kNow);
  book.add(2, "flood", kNow);
  book.add(3, "flood", kNow);
  book.answered(2);
  EXPECT_EQ(book.first_to_leave(kNow), 3U);
  book.answered(3);
  EXPECT_EQ(book.first_to_leave(kNow), 1U);
  book.answered(1);
  EXPECT_FALSE(book.first_to_leave(kNow).has_value());
  EXPECT_EQ(book.first_to_leave(kNow + StrangerBook::kAnsweredGrace), 3U);
}

}  // namespace
}  // namespace spillway::net
