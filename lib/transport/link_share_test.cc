// SPDX-License-Identifier: Apache-2.0
#include "transport/link_share.h"

#include <gtest/gtest.h>

#include "transport/round_trip.h"
#include "wire/frame_overhead.h"

namespace spillway::transport {
namespace {

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
                .taken_us = clock + static_cast<std::uint32_t>(queued.count() / 1000)},
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

}  // namespace
}  // namespace spillway::transport
