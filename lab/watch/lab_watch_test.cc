// SPDX-License-Identifier: Apache-2.0
#include "lab/watch/lab_watch.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <string>

#include "base/clock.h"

namespace spillway::lab {
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
