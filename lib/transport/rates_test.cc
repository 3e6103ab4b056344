// SPDX-License-Identifier: Apache-2.0
//
// Limits of the rate between two ranks: credit, the share of the link, the window.
#include "transport/credit.h"

#include <gtest/gtest.h>

#include "transport/link_share.h"
#include "transport/receive_window.h"
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

// Three of four packets come over streams.
TEST(LinkShare, CountsWhatComesOverStreams) {
  Line line;
  line.pass(base::milliseconds(10), kFrameTime * 3, base::Duration());
  for (int i = 0; i < 5000; ++i) {
    for (int streamed = 0; streamed < 3; ++streamed) {
      line.link.add_streamed(kPayload);
    }
    line.pass(kFrameTime * 8, kFrameTime * 8, base::milliseconds(1));
  }
  EXPECT_NEAR(line.share(), 0.5, 0.03);
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

constexpr base::Bytes kPacket = base::bytes(1000);
constexpr WindowConfig kSmall{.initial = base::bytes(64'000),
                              .most = base::bytes(1'000'000),
                              .delay_target = base::microseconds(20)};

// Packets arrive that use all of the window.
void arrive(ReceiveWindow& window, int packets, ReceiveWindow::Arrival arrival, double used = 1.0,
            double bound = 0.0) {
  arrival.bytes = kPacket.count();
  for (int i = 0; i < packets; ++i) {
    window.on_arrival(arrival,
                      static_cast<std::int64_t>(used * static_cast<double>(window.bytes())), bound);
  }
}

TEST(ReceiveWindow, GrowsWhileNothingWaits) {
  ReceiveWindow window(kSmall, kPacket);
  arrive(window, 64, {});
  EXPECT_EQ(window.bytes(), 64'000 + 16'000 + 1000);
  arrive(window, 100'000, {});
  EXPECT_EQ(window.bytes(), 1'000'000);
}

TEST(ReceiveWindow, GrowsByAPacketWhileSomeWait) {
  ReceiveWindow window(kSmall, kPacket);
  arrive(window, 64, {.queued = kSmall.delay_target * 3});
  EXPECT_EQ(window.bytes(), 65'000);
}

TEST(ReceiveWindow, MarksWithoutDelayOnlySteer) {
  ReceiveWindow window(kSmall, kPacket);
  arrive(window, 1000, {.marked = true});
  EXPECT_EQ(window.bytes(), 64'000);
}

TEST(ReceiveWindow, MarksWithDelayShrinkItByHowFarOffItIs) {
  ReceiveWindow little(kSmall, kPacket);
  ReceiveWindow much(kSmall, kPacket);
  arrive(little, 64, {.queued = kSmall.delay_target * 5 / 4, .marked = true});
  arrive(much, 64, {.queued = kSmall.delay_target * 10, .marked = true});
  EXPECT_LT(little.bytes(), 64'000);
  EXPECT_LT(much.bytes(), little.bytes());
  EXPECT_GE(much.bytes(), 32'000);
}

// Nothing was left to send: that little waits says nothing about more.
TEST(ReceiveWindow, DoesNotGrowUnused) {
  ReceiveWindow window(kSmall, kPacket);
  arrive(window, 1000, {}, /*used=*/0.4);
  EXPECT_EQ(window.bytes(), 64'000);
}

TEST(ReceiveWindow, ShrinksByTheShareThatFoundNoRoom) {
  ReceiveWindow window(kSmall, kPacket);
  arrive(window, 12, {});
  arrive(window, 4, {.unusable = true});  // a quarter of a round, a quarter of which is cut
  EXPECT_EQ(window.bytes(), 48'000);
  arrive(window, 100'000, {.unusable = true});
  EXPECT_EQ(window.bytes(), 4 * kPacket.count()) << "enough to notice a loss";
}

TEST(ReceiveWindow, IsHalvedByLossBeyondTheBoundAlone) {
  ReceiveWindow window(kSmall, kPacket);
  window.on_lost(4);
  arrive(window, 64, {}, 1.0, /*bound=*/0.2);
  EXPECT_GT(window.bytes(), 64'000);
  ReceiveWindow strict(kSmall, kPacket);
  strict.on_lost(4);
  arrive(strict, 16, {});
  EXPECT_EQ(strict.bytes(), 32'000);
}

TEST(ReceiveWindow, BeginsWithWhatALongPathHolds) {
  ReceiveWindow window(kSmall, kPacket);
  window.learn(base::milliseconds(40), base::gigabits_per_second(1));
  EXPECT_EQ(window.bytes(), 5'000'000);
  arrive(window, 5000, {.queued = base::milliseconds(2), .marked = true});
  EXPECT_GE(window.bytes(), 5'000'000) << "2 ms are little on this path";
  ReceiveWindow shrunk(kSmall, kPacket);
  arrive(shrunk, 16, {.unusable = true});
  const std::int64_t before = shrunk.bytes();
  shrunk.learn(base::milliseconds(40), base::gigabits_per_second(1));
  EXPECT_EQ(shrunk.bytes(), before) << "the network has said less";
}

}  // namespace
}  // namespace spillway::transport
