// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <string>

#include "base/clock.h"
#include "lab/time_account.h"

namespace spillway::lab {

namespace {

constexpr auto kMs10 = base::milliseconds(10);
// A link of 8 Mb/s carries this much in 10 ms, in one packet.
constexpr std::uint64_t kFull = 10'000 - 24;

class TimeAccountTest : public testing::Test {
 protected:
  // Looks, then advances the time by 10 ms.
  void look(std::uint64_t packets_of_first, std::uint64_t packets_of_second = 0) {
    ports_[0].bytes += packets_of_first * kFull;
    ports_[0].packets += packets_of_first;
    ports_[1].bytes += packets_of_second * kFull;
    ports_[1].packets += packets_of_second;
    account_.add_sample(now_, ports_, ranks_);
    now_ = now_ + kMs10;
  }
  void count(std::size_t rank, net::Wait wait) {
    ++ranks_[rank].looks[static_cast<std::size_t>(wait)];
  }
  static base::Duration part(const TimeReport& report, net::Wait wait) {
    return report.idle_by_part[static_cast<std::size_t>(wait)];
  }

  const base::BitRate rate_ = base::bits_per_second(8'000'000);
  TimeAccount account_{{{"a->b", rate_}, {"b->a", rate_}}, 2, kMs10};
  base::Instant now_{base::seconds(1)};
  std::vector<PortSample> ports_{2};
  std::vector<net::WaitCounts> ranks_{2};
};

TEST_F(TimeAccountTest, OfNothingSaysNothing) {
  EXPECT_EQ(account_.report().link, "");
  look(0);
  look(0);
  EXPECT_EQ(account_.report().link, "");
  EXPECT_FALSE(account_.report().knows_operations);
}

TEST_F(TimeAccountTest, TheBusiestLinkHasItsUseOverTime) {
  look(0);
  look(1, 0);
  look(0, 1);
  look(1, 0);
  look(0, 0);
  const TimeReport report = account_.report();
  EXPECT_EQ(report.link, "a->b");
  EXPECT_EQ(report.elapsed, base::milliseconds(40));
  EXPECT_NEAR(report.use, 0.5, 0.01);
  ASSERT_EQ(report.use_over_time.size(), 4U);
  EXPECT_NEAR(report.use_over_time[0], 1.0, 0.01);
  EXPECT_NEAR(report.use_over_time[1], 0.0, 0.01);
  EXPECT_FALSE(report.knows_operations);  // as with TCP
  EXPECT_EQ(report.gaps, 0U);
}

TEST_F(TimeAccountTest, WhatAPortTellsAtOnceIsCarriedAtTheLinksRate) {
  look(0);
  look(3);
  look(0);
  look(0);
  look(0);
  const TimeReport report = account_.report();
  EXPECT_NEAR(report.use_over_time[2], 1.0, 0.01);
  EXPECT_NEAR(report.use_over_time[3], 0.0, 0.01);
}

TEST_F(TimeAccountTest, WhatWasCarriedBetweenTwoLooksIsSpreadOverTheBinsBetween) {
  look(0);
  now_ = now_ + kMs10;
  look(1);  // 20 ms after the first
  now_ = now_ + kMs10;
  look(2);
  now_ = now_ + base::milliseconds(5);
  look(0);  // 15 ms later: one bin and half of another
  const TimeReport report = account_.report();
  EXPECT_EQ(report.bin, kMs10);
  ASSERT_EQ(report.use_over_time.size(), 6U);
  EXPECT_NEAR(report.use_over_time[0], 0.5, 0.01);
  EXPECT_NEAR(report.use_over_time[1], 0.5, 0.01);
  EXPECT_NEAR(report.use_over_time[2], 1.0, 0.01);
  EXPECT_NEAR(report.use_over_time[3], 1.0, 0.01);
  EXPECT_NEAR(report.use_over_time[5], 0.0, 0.01);
}

TEST_F(TimeAccountTest, IdleTimeIsSharedOutOverWhatRanksWaitedFor) {
  ranks_[0].under_way = ranks_[1].under_way = 1;
  look(0);
  count(0, net::Wait::kNothing);
  count(1, net::Wait::kNothing);
  look(1);  // full
  count(0, net::Wait::kCredit);
  count(0, net::Wait::kAnswer);
  count(1, net::Wait::kCredit);
  look(0);  // empty: rank 0 half and half, rank 1 credit
  count(0, net::Wait::kStream);
  look(0);  // empty: rank 1 did not look, so it computed
  ranks_[0].under_way = 0;
  ranks_[1].under_way = 0;
  look(0);  // with the caller
  const TimeReport report = account_.report();
  EXPECT_TRUE(report.knows_operations);
  EXPECT_EQ(report.under_way, base::milliseconds(30));
  EXPECT_NEAR(static_cast<double>(report.idle.count()), 20e6, 0.1e6);
  EXPECT_NEAR(static_cast<double>(part(report, net::Wait::kCredit).count()), 7.5e6, 0.1e6);
  EXPECT_NEAR(static_cast<double>(part(report, net::Wait::kAnswer).count()), 2.5e6, 0.1e6);
  EXPECT_NEAR(static_cast<double>(part(report, net::Wait::kStream).count()), 5e6, 0.1e6);
  EXPECT_NEAR(static_cast<double>(part(report, net::Wait::kComputing).count()), 5e6, 0.1e6);
  EXPECT_EQ(report.idle_by_part[kCallerPart], base::Duration());
  EXPECT_EQ(report.gaps, 1U);
  EXPECT_EQ(report.longest_gap, base::milliseconds(20));
}

TEST_F(TimeAccountTest, ARankThatIsLateWithItsCallIsWithItsCaller) {
  ranks_[0].under_way = 1;
  ranks_[1].sent_bytes = 5;  // it took part before
  look(1);
  count(0, net::Wait::kOtherRank);
  look(0);
  look(1);
  const TimeReport report = account_.report();
  EXPECT_NEAR(static_cast<double>(report.idle_by_part[kCallerPart].count()), 5e6, 0.1e6);
  EXPECT_NEAR(static_cast<double>(part(report, net::Wait::kOtherRank).count()), 5e6, 0.1e6);
}

TEST_F(TimeAccountTest, BytesOfRanksAddUp) {
  ranks_[0] = {.sent_bytes = 10, .resent_bytes = 3, .wasted_bytes = 2};
  ranks_[1] = {.sent_bytes = 20, .resent_bytes = 4, .wasted_bytes = 1};
  look(0);
  EXPECT_EQ(account_.report().sent_bytes, 30U);
  EXPECT_EQ(account_.report().resent_bytes, 7U);
  EXPECT_EQ(account_.report().wasted_bytes, 3U);
}

TEST_F(TimeAccountTest, ALongRunHasLongerBins) {
  look(0);
  for (std::size_t i = 0; i < 3 * TimeAccount::kMaxBins; ++i) {
    look(i % 2);
  }
  const TimeReport report = account_.report();
  EXPECT_EQ(report.bin, kMs10 * 4);
  EXPECT_EQ(report.use_over_time.size(), 3 * TimeAccount::kMaxBins / 4);
  for (const double use : report.use_over_time) {
    EXPECT_NEAR(use, 0.5, 0.01);
  }
}

TEST_F(TimeAccountTest, LooksThatDoNotFitOrAreNotNewAreLeftOut) {
  look(0);
  account_.add_sample(now_, {}, ranks_);
  account_.add_sample(base::Instant(), ports_, ranks_);
  EXPECT_EQ(account_.report().elapsed, base::Duration());
}

TEST(TimeAccount, ALinkOfUnknownRateIsNotTheBusiest) {
  TimeAccount account({{"odd", base::BitRate()}}, 0, kMs10);
  const PortSample none;
  const PortSample some{.bytes = 100, .packets = 1};
  account.add_sample(base::Instant(base::milliseconds(1)), {&none, 1}, {});
  account.add_sample(base::Instant(base::milliseconds(2)), {&some, 1}, {});
  EXPECT_EQ(account.report().link, "");
}

}  // namespace

namespace {

scenario::Topology two_leaves() {
  return scenario::leaf_spine({.hosts = 2,
                               .leaves = 2,
                               .spines = 1,
                               .links = 2,
                               .host_rate = base::gigabits_per_second(1),
                               .uplink_rate = base::gigabits_per_second(10)})
      .value();
}

fabric::FabricSnapshot ports_named(const std::vector<std::string>& names) {
  fabric::FabricSnapshot fabric;
  for (const std::string& name : names) {
    fabric.ports.emplace_back().name = name;
  }
  return fabric;
}

TEST(LabWatch, KnowsTheRatesOfLinksByTheirNames) {
  const std::vector<LinkRate> links = link_rates(
      two_leaves(), ports_named({"leaf0->host0", "leaf1->spine0#2", "spine0->leaf0", "odd"}));
  ASSERT_EQ(links.size(), 4U);
  EXPECT_EQ(links[0].rate, base::gigabits_per_second(1));
  EXPECT_EQ(links[1].rate, base::gigabits_per_second(10));
  EXPECT_EQ(links[1].name, "leaf1->spine0#2");
  EXPECT_EQ(links[2].rate, base::gigabits_per_second(10));
  EXPECT_EQ(links[3].rate, base::BitRate());
}

class LabWatchTest : public testing::Test {
 protected:
  LabWatchTest() {
    std::string folder = testing::TempDir() + "lab_watch_XXXXXX";
    folder_ = ::mkdtemp(folder.data());
  }
  ~LabWatchTest() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

TEST_F(LabWatchTest, RanksFindTheirBoards) {
  const RankBoards boards(folder_, 2);
  ASSERT_EQ(boards.variables(1).size(), 1U);
  const std::string variable = boards.variables(1)[0];
  EXPECT_TRUE(variable.starts_with("SPILLWAY_WAITS="));
  net::WaitBoard board =
      net::WaitBoard::open(variable.substr(std::string("SPILLWAY_WAITS=").size())).value();
  board.add({.sent_bytes = 7});
  EXPECT_EQ(boards.read()[1].sent_bytes, 7U);
  EXPECT_EQ(boards.read()[0].sent_bytes, 0U);
  EXPECT_TRUE(boards.variables(2).empty());
  EXPECT_TRUE(RankBoards("/no/such/folder", 2).variables(0).empty());
}

TEST_F(LabWatchTest, SaysInTheEndWhatItSaw) {
  std::atomic<std::uint64_t> bytes = 0;
  const RankBoards boards(folder_, 1);
  LabWatch watch(two_leaves(), boards, [&bytes] {
    fabric::FabricSnapshot fabric = ports_named({"leaf0->host0", "leaf1->host1"});
    fabric.taken = base::MonotonicClock().now();
    fabric.ports[1].sent_bytes = bytes += 1000;
    return fabric;
  });
  const TimeReport report = watch.finish();
  EXPECT_EQ(report.link, "leaf1->host1");
  EXPECT_GT(report.use, 0.0);
  EXPECT_EQ(watch.finish().link, report.link);
}

}  // namespace

}  // namespace spillway::lab
