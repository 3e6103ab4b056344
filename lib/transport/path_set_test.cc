// SPDX-License-Identifier: Apache-2.0
#include "transport/path_set.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace spillway::transport {
namespace {

constexpr base::Duration kRoundTrip = base::microseconds(20);

// A sender's paths and the receiver's counts, with a network that loses as told.
struct PathLine {
  explicit PathLine(unsigned paths, std::uint64_t first_number = 0)
      : sender(paths, {.first_number = first_number}), receiver(first_number) {}

  // Sends one burst, loses packets of it as `lost` says, and reports back one round trip later.
  template <typename Lost>
  std::uint8_t burst(unsigned packets, Lost lost) {
    const std::uint8_t path = sender.choose(now);
    for (unsigned i = 0; i < packets; ++i) {
      const std::uint64_t number = sender.on_sent(path, {.packet = sent++, .bytes = 1000});
      if (!lost(path, i)) {
        receiver.add(
            {.path = path, .number = number, .timestamp_us = stamp_us(now), .marked = false}, now);
      }
      now = now + base::microseconds(1);
    }
    return path;
  }
  PathNews report() {
    PathNews news;
    wire::ControlPacket::Credit credit;
    receiver.report(now, credit);
    now = now + kRoundTrip;
    for (unsigned i = 0; i < credit.path_count; ++i) {
      EXPECT_TRUE(sender.on_report(credit.paths[i], now, news));
    }
    return news;
  }

  PathSet sender;
  PathIntake receiver;
  std::uint16_t sent = 0;
  base::Instant now = base::Instant(base::milliseconds(1));
};

constexpr auto kNothingLost = [](std::uint8_t, unsigned) { return false; };

TEST(PathSet, SpraysOverAllPathsInTurn) {
  PathLine line(5);
  std::multiset<std::uint8_t> used;
  for (int i = 0; i < 20; ++i) {
    used.insert(line.burst(8, kNothingLost));
  }
  for (std::uint8_t path = 0; path < 5; ++path) {
    EXPECT_EQ(used.count(path), 4U);
  }
}

TEST(PathSet, ReportsEmptyTheFlight) {
  PathLine line(4);
  for (int i = 0; i < 12; ++i) {
    line.burst(8, kNothingLost);
  }
  EXPECT_EQ(line.sender.in_flight(), 96U);
  const PathNews news = line.report();
  EXPECT_EQ(news.packets, 96U);
  EXPECT_EQ(news.lost, 0U);
  EXPECT_GE(news.round_trip, kRoundTrip);
  EXPECT_EQ(line.sender.in_flight(), 0U);
}

TEST(PathSet, APacketIsLostWhenALaterOneOfItsPathCame) {
  PathLine line(1);
  line.burst(8, [](std::uint8_t, unsigned i) { return i == 3 || i == 7; });
  EXPECT_EQ(line.report().lost, 1U);  // the last may still be in flight
  EXPECT_EQ(line.sender.in_flight(), 1U);
  line.burst(8, kNothingLost);
  EXPECT_EQ(line.report().lost, 1U);
  EXPECT_EQ(line.sender.in_flight(), 0U);
}

TEST(PathSet, ALateReportTellsOfWhatItKnew) {
  PathLine line(1);
  spillway_path_report early{};
  for (int i = 0; i < 20; ++i) {
    line.burst(40, kNothingLost);  // 800 packets, then the report of only the first 40
    if (i == 0) {
      wire::ControlPacket::Credit credit;
      line.receiver.report(line.now, credit);
      early = credit.paths[0];
    }
  }
  PathNews news;
  line.sender.on_report(early, line.now, news);
  EXPECT_EQ(news.packets, 40U);
  EXPECT_EQ(news.lost, 0U);
  EXPECT_EQ(line.sender.in_flight(), 760U);
}

TEST(PathSet, OldAndRepeatedReportsChangeNothing) {
  PathLine line(1);
  line.burst(8, kNothingLost);
  wire::ControlPacket::Credit credit;
  line.receiver.report(line.now, credit);
  const spillway_path_report old = credit.paths[0];
  PathNews news;
  line.sender.on_report(old, line.now, news);
  line.burst(8, kNothingLost);
  line.report();
  PathNews again;
  EXPECT_TRUE(line.sender.on_report(old, line.now, again));
  EXPECT_EQ(again.packets, 0U);
  EXPECT_EQ(line.sender.in_flight(), 0U);
}

TEST(PathSet, DuplicatesInTheNetworkDoNotCountTwice) {
  PathLine line(1);
  line.burst(8, kNothingLost);
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(
        line.receiver.add({.path = 0, .number = 8, .timestamp_us = stamp_us(line.now)}, line.now));
  }
  EXPECT_EQ(line.report().packets, 8U);
  line.burst(8, kNothingLost);
  EXPECT_EQ(line.report().packets, 8U);
  EXPECT_EQ(line.sender.in_flight(), 0U);
}

TEST(PathSet, WhatIsLongOnItsWayIsGivenUp) {
  PathLine line(2);
  line.burst(8, [](std::uint8_t, unsigned) { return true; });
  line.now = line.now + base::milliseconds(1);
  line.burst(4, [](std::uint8_t, unsigned) { return true; });
  PathNews news;
  line.sender.expire(line.now - base::microseconds(500), line.now, news);
  EXPECT_EQ(news.lost, 8U);
  EXPECT_EQ(line.sender.in_flight(), 4U);
}

TEST(PathSet, TheRestOfABurstIsGivenUpToo) {
  PathLine line(2);
  const std::uint8_t path = line.burst(4, [](std::uint8_t, unsigned) { return true; });
  PathNews news;
  const auto expire = [&] {
    line.now = line.now + kRoundTrip * 4;
    line.sender.expire(line.now - kRoundTrip * 2, line.now, news);
  };
  expire();
  EXPECT_EQ(line.sender.in_flight(), 0U);
  line.sender.on_sent(path, {});  // of the same burst
  EXPECT_EQ(line.sender.in_flight(), 1U);
  expire();
  expire();
  EXPECT_EQ(line.sender.in_flight(), 0U);
  EXPECT_EQ(news.lost, 5U);
}

// Lost packets are given up whatever the clock says at the first packet, and after any pause.
TEST(PathSet, GivesUpAtAnyTimeOfTheClock) {
  constexpr std::int64_t kRound = std::int64_t{1} << 32;
  for (const std::int64_t begin : {std::int64_t{1}, kRound / 2 - 50, kRound / 2 + 50,
                                   kRound * 3 / 4, kRound - 50, 6 * kRound + kRound / 2 + 1}) {
    PathLine line(2);
    line.now = base::Instant(base::microseconds(begin));
    for (int rest = 0; rest < 3; ++rest) {
      line.burst(4, [](std::uint8_t, unsigned) { return true; });
      PathNews news;
      line.now = line.now + kRoundTrip * 4;
      line.sender.expire(line.now - kRoundTrip * 2, line.now, news);
      EXPECT_EQ(news.lost, 4U) << begin << ", rest " << rest;
      EXPECT_EQ(line.sender.in_flight(), 0U);
      line.now = line.now + base::seconds(1500 * (rest + 1));
    }
  }
}

TEST(PathSet, AGrayPathIsRetiredAndTriedAgain) {
  PathLine line(4);
  unsigned packet = 0;
  const auto gray = [&](std::uint8_t path, unsigned) { return path == 2 && ++packet % 20 == 0; };
  for (int i = 0; i < 400 && line.sender.is_good(2); ++i) {
    line.burst(8, gray);
    line.report();
  }
  EXPECT_FALSE(line.sender.is_good(2));
  EXPECT_EQ(line.sender.good_paths(), 3U);
  for (int i = 0; i < 12; ++i) {
    EXPECT_NE(line.burst(8, kNothingLost), 2);
    line.report();
  }
  line.now = line.now + base::milliseconds(2);
  std::set<std::uint8_t> used;
  for (int i = 0; i < 12; ++i) {
    used.insert(line.burst(8, kNothingLost));
    line.report();
  }
  EXPECT_TRUE(used.contains(2));
  EXPECT_TRUE(line.sender.is_good(2));
}

TEST(PathSet, APathThatSwallowsEverythingIsRetiredAfterTwoBursts) {
  PathLine line(8);
  int bursts_into_the_hole = 0;
  for (int i = 0; i < 200; ++i) {
    const std::uint8_t path = line.burst(8, [](std::uint8_t path, unsigned) { return path == 5; });
    bursts_into_the_hole += path == 5 ? 1 : 0;
    PathNews news = line.report();
    line.sender.expire(line.now - base::microseconds(100), line.now, news);
  }
  EXPECT_FALSE(line.sender.is_good(5));
  EXPECT_LE(bursts_into_the_hole, 10);  // two, the packets in flight, and a few trials
}

TEST(PathSet, LossOnAllPathsAlikeRetiresNone) {
  PathLine line(4);
  unsigned packet = 0;
  for (int i = 0; i < 800; ++i) {
    line.burst(8, [&](std::uint8_t, unsigned) { return ++packet % 13 == 0; });
    line.report();
  }
  EXPECT_EQ(line.sender.good_paths(), 4U);
}

TEST(PathSet, TheLastGoodPathStays) {
  PathLine line(2);
  for (int i = 0; i < 200; ++i) {
    line.burst(8, [](std::uint8_t, unsigned) { return true; });
    PathNews news;
    line.now = line.now + base::microseconds(200);
    line.sender.expire(line.now - base::microseconds(100), line.now, news);
  }
  EXPECT_GE(line.sender.good_paths(), 1U);
}

TEST(PathSet, MarkedPathsAreUsedLess) {
  PathLine line(4);
  std::multiset<std::uint8_t> used;
  for (int i = 0; i < 200; ++i) {
    const std::uint8_t path = line.sender.choose(line.now);
    used.insert(path);
    for (int k = 0; k < 8; ++k) {
      const std::uint64_t number = line.sender.on_sent(path, {});
      line.receiver.add(
          {.path = path, .number = number, .timestamp_us = stamp_us(line.now), .marked = path == 1},
          line.now);
    }
    line.report();
  }
  EXPECT_LT(used.count(1), used.count(0) * 3 / 4);
}

TEST(PathSet, UnknownPathsInReportsAreRefused) {
  PathSet paths(2, {});
  PathNews news;
  spillway_path_report report{};
  report.path = 2;
  report.packets = 1;
  EXPECT_FALSE(paths.on_report(report, base::Instant(), news));
}

TEST(PathSet, ControlPacketsOfAnyPatternMeetEveryPath) {
  PathSet paths(2, {});
  // Every second, third, ... eighth control packet must not always meet the same path.
  for (unsigned period = 1; period <= 8; ++period) {
    std::set<std::uint8_t> met;
    for (unsigned i = 0; i < 40 * period; ++i) {
      const std::uint8_t path = paths.choose_for_control();
      if (i % period == 0) {
        met.insert(path);
      }
    }
    EXPECT_EQ(met.size(), 2U) << period;
  }
}

// Reports carry 32 bits of every counter.
TEST(PathSet, CountersPassTheEdgeOfWhatReportsCarry) {
  for (const std::uint64_t first : {(std::uint64_t{1} << 32) - 20, (std::uint64_t{9} << 32) - 3}) {
    PathLine line(2, first);
    for (int i = 0; i < 40; ++i) {
      line.burst(8, [i](std::uint8_t, unsigned packet) { return i % 10 == 3 && packet == 2; });
      const PathNews news = line.report();
      ASSERT_EQ(news.packets, i % 10 == 3 ? 7U : 8U) << first << ", burst " << i;
      ASSERT_EQ(news.lost, i % 10 == 3 ? 1U : 0U);
      ASSERT_EQ(line.sender.in_flight(), 0U);
    }
  }
}

TEST(PathSet, ADayOfIdlenessChangesNothing) {
  PathLine line(2);
  for (int day = 0; day < 3; ++day) {
    for (int i = 0; i < 4; ++i) {
      line.burst(8, kNothingLost);
      const PathNews news = line.report();
      EXPECT_EQ(news.packets, 8U);
      EXPECT_LT(news.round_trip, kRoundTrip * 2);
      EXPECT_EQ(line.sender.in_flight(), 0U);
    }
    line.now = line.now + base::seconds(86'400 + 1'234 * day);
  }
}

TEST(PathIntake, CountsAPacketOnce) {
  PathIntake intake;
  const auto add = [&](std::uint64_t number) {
    return intake.add({.path = 1, .number = number, .timestamp_us = 0}, {});
  };
  EXPECT_TRUE(add(1));
  EXPECT_FALSE(add(1));
  EXPECT_TRUE(add(100));
  EXPECT_TRUE(add(99));
  EXPECT_FALSE(add(99));
  EXPECT_FALSE(add(2));  // too long ago to tell
  EXPECT_TRUE(add(1000));
  EXPECT_TRUE(add(937));
  EXPECT_FALSE(add(936));
  wire::ControlPacket::Credit credit;
  intake.report({}, credit);
  EXPECT_TRUE(credit.paths[0].packets == 5U);  // packed: nothing may refer to them
  EXPECT_TRUE(credit.paths[0].echo_number == 1000U);
}

// The indices of packets that reports named as missing, in order.
std::vector<std::uint16_t> named(const PathNews& news) {
  std::vector<std::uint16_t> packets;
  for (const SentPacket& gap : news.gaps) {
    packets.push_back(gap.packet);
  }
  return packets;
}

TEST(PathSet, AReportNamesWhatIsMissing) {
  PathLine line(1);
  line.burst(16, [](std::uint8_t, unsigned i) { return i == 3 || i == 9 || i == 14; });
  EXPECT_EQ(named(line.report()), (std::vector<std::uint16_t>{3, 9}));  // 14 may come late
  line.burst(8, kNothingLost);
  EXPECT_EQ(named(line.report()), (std::vector<std::uint16_t>{14}));
  line.burst(8, kNothingLost);
  EXPECT_TRUE(named(line.report()).empty()) << "each is named once";
}

TEST(PathSet, AReportNamesWhatCameAndIsOfNoUse) {
  PathLine line(1);
  line.burst(8, kNothingLost);
  line.receiver.on_unusable(0, 3);  // the third: numbers count from 1
  const PathNews news = line.report();
  EXPECT_EQ(named(news), (std::vector<std::uint16_t>{2}));
  EXPECT_EQ(news.packets, 8U);
  EXPECT_EQ(news.lost, 0U);
}

TEST(PathSet, UrgentPacketsMayOvertake) {
  PathSet sender(1, {});
  PathIntake receiver;
  wire::ControlPacket::Credit credit;
  const std::uint8_t path = sender.choose({});
  const auto send = [&](std::uint8_t priority, bool arrives) {
    const std::uint64_t number = sender.on_sent(path, {.priority = priority});
    if (arrives) {
      receiver.add({.path = path, .number = number}, {});
    }
  };
  const auto gaps = [&] {
    PathNews news;
    credit.path_count = 0;
    receiver.report({}, credit);
    EXPECT_TRUE(sender.on_report(credit.paths[0], {}, news));
    return news.gaps.size();
  };
  send(1, false);
  for (int i = 0; i < 3; ++i) {
    send(6, true);
  }
  EXPECT_EQ(gaps(), 0U);
  send(1, false);
  for (int i = 0; i < 3; ++i) {
    send(0, true);
  }
  EXPECT_EQ(gaps(), 1U) << "the first was settled before";
}

TEST(PathSet, ForgottenPacketsAreNotNamed) {
  PathLine line(1);
  line.burst(200, [](std::uint8_t, unsigned i) { return i == 10 || i == 150; });
  EXPECT_EQ(named(line.report()), (std::vector<std::uint16_t>{150}));
}

}  // namespace
}  // namespace spillway::transport
