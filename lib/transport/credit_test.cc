// SPDX-License-Identifier: Apache-2.0
#include "transport/credit.h"

#include <gtest/gtest.h>

namespace spillway::transport {
namespace {

constexpr std::uint32_t kStanding = 10;
constexpr std::uint32_t kWindow = 100;
constexpr std::uint32_t kQuantum = 16;

std::uint32_t next_of(const CreditBook& book) {
  return book.grantable(kStanding, kWindow, kQuantum);
}

// Grants all that can be granted; returns how much.
std::uint32_t grant_all(CreditBook& book) {
  std::uint32_t all = 0;
  for (std::uint32_t next = next_of(book); next > 0; next = next_of(book)) {
    book.grant(next);
    all += next;
  }
  return all;
}

TEST(CreditBalance, BeginsWithStandingCreditAndNeverRunsBack) {
  CreditBalance balance(/*first_number=*/0, kStanding);
  for (std::uint32_t i = 0; i < kStanding; ++i) {
    ASSERT_TRUE(balance.has_credit());
    balance.on_sent();
  }
  EXPECT_FALSE(balance.has_credit());
  EXPECT_TRUE(balance.on_granted(kStanding + 2));
  EXPECT_FALSE(balance.on_granted(kStanding + 1));  // an old one
  balance.on_sent();
  EXPECT_TRUE(balance.has_credit());
}

TEST(CreditBalance, CountsOnWhereTheLowBitsTurn) {
  const std::uint64_t first = (std::uint64_t{1} << 32) - 5;
  CreditBalance balance(first, kStanding);
  EXPECT_TRUE(balance.on_granted(static_cast<std::uint32_t>(first + 50)));
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(balance.has_credit()) << i;
    balance.on_sent();
  }
  EXPECT_FALSE(balance.has_credit());
}

TEST(CreditBook, GrantsUpToTheWindowInQuanta) {
  CreditBook book(0, kStanding);
  EXPECT_EQ(next_of(book), 0U);
  book.want(1000);
  EXPECT_EQ(next_of(book), kQuantum);
  grant_all(book);
  EXPECT_LE(book.unused(), kWindow);
  EXPECT_GT(book.unused() + kQuantum, kWindow);
  book.on_numbered(kQuantum);  // they arrived
  book.want_less(kQuantum);
  EXPECT_EQ(next_of(book), kQuantum);
}

TEST(CreditBook, NeverGrantsMoreThanIsWanted) {
  CreditBook book(0, kStanding);
  book.want(25);
  grant_all(book);
  EXPECT_EQ(book.unused(), 25U);
  EXPECT_TRUE(book.covers_all());
  for (std::uint32_t sent = 1; sent <= 25; ++sent) {
    book.on_numbered(sent);
    book.want_less(1);
  }
  EXPECT_EQ(book.wanted(), 0U);
  grant_all(book);
  EXPECT_EQ(book.unused(), kStanding);  // standing credit for the next message
}

// Packet numbers, or a PROBE, tell of packets that were sent and lost.
TEST(CreditBook, CreditSpentOnLostPacketsComesBack) {
  for (const bool by_probe : {false, true}) {
    CreditBook book(0, kStanding);
    book.want(40);
    grant_all(book);
    if (by_probe) {
      book.on_settled(40);
    } else {
      book.on_numbered(40);
    }
    book.want_less(30);  // came
    grant_all(book);
    EXPECT_EQ(book.unused(), 10U);
  }
}

// On a path that died no number ever shows what was lost, yet packets of other paths count.
TEST(CreditBook, PacketsBehindWhichNothingComesAreCountedOnce) {
  CreditBook book(0, kStanding);
  book.want(1000);
  grant_all(book);
  const std::uint32_t lost = 60;
  const auto sent = static_cast<std::uint32_t>(book.granted());
  book.on_numbered(sent - lost);
  book.on_settled(sent);
  EXPECT_EQ(book.unused(), 0U);
  const std::uint32_t more = grant_all(book);
  book.on_numbered(sent - lost + more);
  EXPECT_EQ(book.unused(), 0U);
  // It was not dead: numbers show all. Packets presumed lost do not count twice for ever.
  const std::uint32_t rest = grant_all(book);
  book.on_numbered(sent + more);
  EXPECT_EQ(book.unused(), rest - std::min(rest, lost));
  book.on_numbered(sent + more + rest);
  EXPECT_EQ(book.sent(), book.granted());
  grant_all(book);
  EXPECT_EQ(book.unused() / kQuantum, kWindow / kQuantum);
}

TEST(CreditBalance, SaysWhatWasSentBeforeSilence) {
  CreditBalance balance(7, kStanding);
  EXPECT_EQ(balance.settled(), 7U);
  balance.on_sent();
  EXPECT_EQ(balance.settled(), 7U);
  balance.on_silence();
  EXPECT_EQ(balance.settled(), 8U);
}

TEST(CreditBook, WhatHasToComeAgainKeepsItsCredit) {
  CreditBook book(0, kStanding);
  book.want(1000);
  grant_all(book);
  book.on_numbered(book.granted());  // all came, 40 of them cut
  for (int i = 0; i < 40; ++i) {
    book.on_spoilt();
  }
  book.want_less(static_cast<std::uint32_t>(book.granted()) - 40);
  grant_all(book);
  EXPECT_LE(book.unused(), kWindow - 40);
  for (int i = 0; i < 40; ++i) {
    book.on_repaired();
  }
  grant_all(book);
  EXPECT_GT(book.unused() + kQuantum, kWindow);
  for (int i = 0; i < 1000; ++i) {
    book.on_spoilt();  // however many: a quantum is granted
  }
  book.on_numbered(book.granted());
  EXPECT_EQ(next_of(book), kQuantum);
}

TEST(CreditBook, NobodyCanClaimToHaveSentMoreThanWasGranted) {
  CreditBook book(0, kStanding);
  book.on_settled(1'000'000);
  EXPECT_EQ(book.sent(), kStanding);
  book.on_settled(3);
  EXPECT_EQ(book.sent(), kStanding);
  EXPECT_EQ(grant_all(book), kStanding);
}

}  // namespace
}  // namespace spillway::transport
