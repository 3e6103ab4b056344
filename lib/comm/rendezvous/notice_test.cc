// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous/notice.h"

#include <gtest/gtest.h>

namespace spillway::runtime {
namespace {

constexpr base::Instant kBegin{base::seconds(100)};

TEST(WaitNotice, ComesAfterAWhileAndThenHalfAsOften) {
  WaitNotice notice(kBegin);
  EXPECT_FALSE(notice.is_due(kBegin + kFirstNotice - base::nanoseconds(1)));
  EXPECT_TRUE(notice.is_due(kBegin + kFirstNotice));
  EXPECT_FALSE(notice.is_due(kBegin + kFirstNotice));
  EXPECT_EQ(notice.next(), kBegin + kFirstNotice * 2);
  EXPECT_TRUE(notice.is_due(kBegin + kFirstNotice * 2));
  EXPECT_EQ(notice.next(), kBegin + kFirstNotice * 4);
}

TEST(WaitNotice, WhoLooksLateIsToldOnce) {
  WaitNotice notice(kBegin);
  EXPECT_TRUE(notice.is_due(kBegin + kFirstNotice * 5));
  EXPECT_FALSE(notice.is_due(kBegin + kFirstNotice * 5));
  EXPECT_EQ(notice.next(), kBegin + kFirstNotice * 8);
}

TEST(RendezvousSentence, NamesRanks) {
  const auto names = [](std::vector<std::uint32_t> ranks) { return name_ranks(ranks, 64); };
  EXPECT_EQ(names({3}), "rank 3 of 64");
  EXPECT_EQ(names({3, 7}), "ranks 3 and 7 of 64");
  EXPECT_EQ(names({3, 4}), "ranks 3 and 4 of 64");
  EXPECT_EQ(names({1, 2, 3, 4, 5, 9}), "ranks 1-5 and 9 of 64");
  std::vector<std::uint32_t> odd;
  for (std::uint32_t rank = 1; rank < 64; rank += 2) {
    odd.push_back(rank);
  }
  EXPECT_EQ(names(odd), "ranks 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23 and 20 others of 64");
  EXPECT_EQ(name_duration(base::seconds(30)), "30 s");
  EXPECT_EQ(name_duration(base::milliseconds(250)), "250 ms");
}

}  // namespace
}  // namespace spillway::runtime
