// SPDX-License-Identifier: Apache-2.0
//
// Limits of the rate between two ranks: credit, the share of the link, the window.
#include "transport/credit.h"

#include <gtest/gtest.h>

#include "transport/congestion_control.h"
#include "transport/link_share.h"
#include "wire/packet.h"

namespace spillway::transport {
namespace {

// ------------------------------------------------------------------ credit

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
    book.on_unusable();
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
    book.on_unusable();  // however many: a quantum is granted
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

// ------------------------------------------------------------------ link share

constexpr std::int64_t kFrame = 1538;  // on the wire
constexpr std::int64_t kPayload = kFrame - spillway_frame_overhead(0) - SPILLWAY_WIRE_OVERHEAD;
constexpr base::Duration kFrameTime = base::microseconds(50);  // at about 250 Mb/s
const base::BitRate kRate = base::bits_per_second(kFrame * 8 * 20'000);

// Packets of two peers in turn, one every `gap`; each waited for `queued`.
struct Line {
  LinkShare link{kRate};
  base::Instant now;
  std::uint64_t packets = 0;
  unsigned peers = 2;

  void pass(base::Duration time, base::Duration gap, base::Duration queued) {
    for (const base::Instant end = now + time; now < end; now = now + gap) {
      const auto peer = static_cast<std::uint16_t>(packets++ % peers);
      // Clocks differ by anything: the low bits of the transit time wrap.
      const std::uint32_t clock = peer * 0xF000'0000U - 100U;
      link.add({.peer = peer,
                .bytes = kPayload,
                .transit_us = clock + static_cast<std::uint32_t>(queued.count() / 1000)},
               now);
    }
  }
  double share() const { return link.share(now).value_or(-1.0); }
};

TEST(LinkShare, IsUnknownAtFirstAndOnAnIdleLink) {
  Line line;
  EXPECT_FALSE(line.link.share(line.now));
  line.pass(base::seconds(1), kFrameTime * 3, base::Duration());
  EXPECT_FALSE(line.link.share(line.now));
}

TEST(LinkShare, IsAllOfALinkThatCarriesNothingElse) {
  Line line;
  line.pass(base::seconds(1), kFrameTime, base::Duration());
  EXPECT_NEAR(line.share(), 1.0, 0.02);
  line.pass(base::seconds(1), kFrameTime, base::milliseconds(1));
  EXPECT_NEAR(line.share(), 1.0, 0.02);
}

TEST(LinkShare, IsWhatComesWhilePacketsWait) {
  Line line;
  line.pass(base::milliseconds(10), kFrameTime * 3, base::Duration());
  line.pass(base::seconds(1), kFrameTime * 4, base::milliseconds(1));
  EXPECT_NEAR(line.share(), 0.25, 0.02);
}

TEST(LinkShare, AveragesACrowdThatComesAndGoes) {
  Line line;
  line.pass(base::milliseconds(10), kFrameTime * 3, base::Duration());
  for (int i = 0; i < 50; ++i) {
    line.pass(base::milliseconds(20), kFrameTime * 4, base::milliseconds(1));
    line.pass(base::milliseconds(20), kFrameTime, base::milliseconds(0));
  }
  EXPECT_NEAR(line.share(), (0.25 + 1.0) / 2, 0.04);
}

TEST(LinkShare, PausesSayNothing) {
  Line line;
  line.pass(base::milliseconds(10), kFrameTime * 3, base::Duration());
  for (int i = 0; i < 50; ++i) {
    line.pass(base::milliseconds(10), kFrameTime, base::milliseconds(1));
    line.now = line.now + base::milliseconds(30);
  }
  EXPECT_NEAR(line.share(), 1.0, 0.02);
}

TEST(LinkShare, APeerThatIsSlowByItselfSaysNothing) {
  Line line;
  line.peers = 1;
  line.pass(base::milliseconds(10), kFrameTime * 3, base::Duration());
  line.pass(base::seconds(1), kFrameTime * 4, base::milliseconds(1));
  EXPECT_FALSE(line.link.share(line.now));
}

TEST(LinkShare, DriftOfClocksIsNoQueue) {
  Line line;
  for (int i = 0; i < 1000; ++i) {
    line.pass(base::milliseconds(10), kFrameTime * 3,
              base::nanoseconds(i * 200));  // 20 us a second
  }
  EXPECT_FALSE(line.link.share(line.now));
}

// Clocks drift by more than kNoise in a pause, which is no queue either.
TEST(LinkShare, DriftInAPauseIsNoQueue) {
  Line line;
  for (int i = 0; i < 5; ++i) {
    line.pass(base::seconds(1), kFrameTime * 3, base::microseconds(600 * i));
    line.now = line.now + base::seconds(30);  // 20 us a second
  }
  EXPECT_FALSE(line.link.share(line.now));
}

TEST(LinkShare, FollowsACrowdThatGoesAway) {
  Line line;
  line.pass(base::milliseconds(10), kFrameTime * 3, base::Duration());
  line.pass(base::seconds(1), kFrameTime * 4, base::milliseconds(1));
  line.pass(base::milliseconds(1500), kFrameTime, base::Duration());
  EXPECT_GT(line.share(), 0.9);
}

TEST(LinkShare, OfAFastLinkIsUnknown) {
  Line line;
  line.link = LinkShare(LinkShare::kFastest + base::bits_per_second(1));
  line.pass(base::milliseconds(10), kFrameTime * 3, base::Duration());
  line.pass(base::seconds(1), kFrameTime * 4, base::milliseconds(1));
  EXPECT_FALSE(line.link.share(line.now));
}

TEST(LinkShare, IsForgottenWhenNothingTellsOfItAnyMore) {
  Line line;
  line.pass(base::milliseconds(10), kFrameTime * 3, base::Duration());
  line.pass(base::seconds(1), kFrameTime * 4, base::milliseconds(1));
  line.pass(LinkShare::kStale + base::seconds(1), kFrameTime * 4, base::Duration());
  EXPECT_FALSE(line.link.share(line.now));
}

// ------------------------------------------------------------------ window

constexpr base::Duration kBase = base::microseconds(20);

CongestionConfig small_config() {
  CongestionConfig config;
  config.packet = base::bytes(1000);
  config.window_initial = base::bytes(64'000);
  config.window_max = base::bytes(1'000'000);
  config.delay_target = base::microseconds(20);
  return config;
}

TEST(SpillwayControl, MarksWithoutDelayOnlySteer) {
  const auto control = make_congestion_control(small_config());
  const std::int64_t before = control->window().count();
  FeedbackSample sample;
  sample.round_trip = kBase;
  sample.acked_bytes = 8000;
  sample.acked_packets = 8;
  sample.marked_packets = 8;
  for (int i = 0; i < 100; ++i) {
    sample.now = base::Instant(base::microseconds(100 + 10 * i));
    control->on_feedback(sample);
  }
  EXPECT_EQ(control->window().count(), before);
}

// Credit ran out, or nothing was left to send: that little gets through says nothing about more.
TEST(SpillwayControl, AWindowThatIsNotUsedDoesNotGrowAndIsCutToWhatIs) {
  const CongestionConfig config = small_config();
  const auto control = make_congestion_control(config);
  FeedbackSample sample;
  sample.round_trip = kBase;
  sample.acked_bytes = 1000;
  sample.acked_packets = 1;
  sample.in_flight_bytes = config.window_initial.count() / 4;
  for (int i = 0; i < 100; ++i) {
    sample.now = base::Instant(base::microseconds(100 + 10 * i));
    control->on_feedback(sample);
  }
  EXPECT_EQ(control->window(), config.window_initial);
  sample.unusable_packets = 1;
  control->on_feedback(sample);
  EXPECT_LT(control->window().count(), sample.in_flight_bytes);
}

TEST(SpillwayControl, AdaptsQuicklyToAnIncast) {
  CongestionConfig config = small_config();
  config.window_initial = base::bytes(1'000'000);
  const auto control = make_congestion_control(config);
  // A hundredth of the window gets through per round trip, the queue is ten targets long.
  FeedbackSample sample;
  sample.round_trip = kBase;
  sample.now = base::Instant(base::microseconds(100));
  sample.acked_packets = 10;
  sample.acked_bytes = 10'000;
  sample.in_flight_bytes = config.window_initial.count();
  control->on_feedback(sample);
  sample.round_trip = kBase + config.delay_target * 10;
  sample.marked_packets = 10;
  for (int i = 0; i < 4; ++i) {
    sample.now = sample.now + sample.round_trip;
    control->on_feedback(sample);
  }
  EXPECT_LT(control->window().count(), 50'000);  // halving would need five round trips
}

TEST(SpillwayControl, TrimsUpToTheTargetAreNoCongestion) {
  CongestionConfig config = small_config();
  config.trimmed_target = 0.2;
  const auto control = make_congestion_control(config);
  FeedbackSample sample;
  sample.round_trip = kBase + config.delay_target * 20;
  sample.acked_bytes = 10'000;
  sample.acked_packets = 10;
  sample.marked_packets = 10;
  sample.trimmed_packets = 2;
  for (int i = 0; i < 100; ++i) {
    sample.now = base::Instant(base::microseconds(100 + 400 * i));
    control->on_feedback(sample);
  }
  EXPECT_GE(control->window(), config.window_initial);
}

}  // namespace
}  // namespace spillway::transport
