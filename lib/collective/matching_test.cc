// SPDX-License-Identifier: Apache-2.0
#include "collective/matching.h"

#include <gtest/gtest.h>

#include <string>

namespace spillway::collective {
namespace {

constexpr std::uint16_t kRanks = 4;

wire::MessageId message(std::uint16_t source, std::uint32_t number, std::uint32_t tag) {
  Operation operation{.kind = Kind::kSend, .count = 1, .tag = tag};
  return {.operation = number,
          .signature = signature(operation),
          .source = source,
          .phase = wire::Phase::kPointToPoint};
}

// Matches since the last call, as "receive<-source.number".
std::string found(ReceiveMatching& matching) {
  std::string text;
  while (const auto match = matching.next()) {
    text += (text.empty() ? "" : " ") + std::to_string(match->order) + "<-" +
            std::to_string(match->message.source) + "." + std::to_string(match->message.operation);
  }
  return text;
}

TEST(ReceiveMatching, AReceiveGetsItsRanksMessageWhicheverComesFirst) {
  ReceiveMatching matching(kRanks);
  matching.post(1, 2, 0);
  EXPECT_EQ(found(matching), "");
  matching.announce(message(3, 0, 0));
  EXPECT_EQ(found(matching), "");
  matching.announce(message(2, 0, 0));
  EXPECT_EQ(found(matching), "1<-2.0");
  matching.post(2, 3, 0);
  EXPECT_EQ(found(matching), "2<-3.0");
}

TEST(ReceiveMatching, TagsAreReceivedInAnyOrder) {
  ReceiveMatching matching(kRanks);
  matching.announce(message(1, 0, 5));
  matching.announce(message(1, 1, 7));
  matching.post(1, 1, 7);
  EXPECT_EQ(found(matching), "1<-1.1");
  matching.post(2, 1, 6);
  matching.post(3, 1, 5);
  EXPECT_EQ(found(matching), "3<-1.0");
}

TEST(ReceiveMatching, MessagesOfOneTagNeverOvertakeEachOther) {
  ReceiveMatching matching(kRanks);
  matching.post(1, 1, 5);
  matching.post(2, 1, 5);
  matching.announce(message(1, 2, 5));
  matching.announce(message(1, 1, 5));
  EXPECT_EQ(found(matching), "") << "one of the tag may have been sent before them";
  matching.announce(message(1, 0, 6));
  EXPECT_EQ(found(matching), "1<-1.1 2<-1.2");
}

TEST(ReceiveMatching, WhatIsToldAgainIsTakenOnce) {
  ReceiveMatching matching(kRanks);
  matching.announce(message(1, 0, 0));
  matching.announce(message(1, 0, 0));
  matching.post(1, 1, 0);
  matching.announce(message(1, 0, 0));
  matching.post(2, 1, 0);
  EXPECT_EQ(found(matching), "1<-1.0");
}

TEST(ReceiveMatching, AnyRankIsTheOneThatWasAnnouncedFirst) {
  ReceiveMatching matching(kRanks);
  matching.announce(message(3, 0, 1));
  matching.announce(message(2, 0, 0));
  matching.announce(message(1, 0, 0));
  matching.post(1, kAnyRank, 0);
  matching.post(2, kAnyRank, 0);
  matching.post(3, kAnyRank, 0);
  EXPECT_EQ(found(matching), "1<-2.0 2<-1.0");
  matching.announce(message(3, 1, 0));
  EXPECT_EQ(found(matching), "3<-3.1");
}

TEST(ReceiveMatching, AMessageGoesToTheReceiveThatWasPostedFirst) {
  ReceiveMatching matching(kRanks);
  matching.post(1, kAnyRank, 0);
  matching.post(2, 1, 0);
  matching.post(3, kAnyRank, 0);
  matching.announce(message(1, 0, 0));
  matching.announce(message(1, 1, 0));
  matching.announce(message(1, 2, 0));
  EXPECT_EQ(found(matching), "1<-1.0 2<-1.1 3<-1.2");
}

TEST(ReceiveMatching, TheFloorIsBelowTheFirstThatHasNotEnded) {
  ReceiveMatching matching(kRanks);
  EXPECT_EQ(matching.finish(1, 1), 0U);
  EXPECT_EQ(matching.finish(1, 2), 0U);
  EXPECT_EQ(matching.finish(1, 0), 3U);
  EXPECT_EQ(matching.finish(2, 0), 1U);
}

TEST(ReceiveMatching, WhatIsTooFarAheadIsLookedAtWhenThereIsRoom) {
  ReceiveMatching matching(kRanks);
  for (std::uint32_t number = 0; number <= ReceiveMatching::kMaxAhead; ++number) {
    matching.announce(message(1, number, number == 0 ? 1 : 0));
  }
  for (std::uint32_t number = 1; number <= ReceiveMatching::kMaxAhead; ++number) {
    matching.post(number, 1, 0);
  }
  std::uint32_t taken = 0;
  while (const auto match = matching.next()) {
    EXPECT_EQ(matching.finish(1, match->message.operation), 0U);
    ++taken;
  }
  EXPECT_EQ(taken, ReceiveMatching::kMaxAhead - 1);
  matching.post(10'000, 1, 1);
  EXPECT_EQ(found(matching), "10000<-1.0");
  matching.finish(1, 0);
  matching.announce(message(1, ReceiveMatching::kMaxAhead, 0));
  EXPECT_EQ(found(matching), "4096<-1.4096");
}

TEST(ReceiveMatching, RanksThatThereAreNotAreNotHeard) {
  ReceiveMatching matching(kRanks);
  matching.post(1, kAnyRank, 0);
  matching.announce(message(kRanks, 0, 0));
  matching.announce(message(kAnyRank, 0, 0));
  EXPECT_EQ(found(matching), "");
}

}  // namespace
}  // namespace spillway::collective
