// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "emulate/emulate_testing.h"
#include "emulate/stage/stage_durations.h"

namespace spillway::emulate {
namespace {

TEST(SiblingGroups, AreTheOtherGroupsOfTheSameDivision) {
  const std::vector<std::uint32_t> tensor = {2, 3};
  EXPECT_EQ(sibling_groups(tensor, 8).size(), 4U);
  EXPECT_EQ(sibling_groups(tensor, 8).front(), tensor);
  const std::vector<std::uint32_t> data = {1, 3, 5, 7};
  EXPECT_EQ(sibling_groups(data, 8),
            (std::vector<std::vector<std::uint32_t>>{{1, 3, 5, 7}, {0, 2, 4, 6}}));
  EXPECT_EQ(sibling_groups({5, 7}, 16).size(), 8U);
}

TEST(SiblingGroups, IrregularGroupsHaveNone) {
  EXPECT_EQ(sibling_groups({0, 1, 3}, 8).size(), 1U);
  EXPECT_EQ(sibling_groups({1, 2}, 8).size(), 1U);     // no division has a group that begins there
  EXPECT_EQ(sibling_groups({0, 1, 2}, 8).size(), 1U);  // 8 is not a multiple
}

FlowDurations durations_on(const std::string& network, std::uint32_t world) {
  return FlowDurations(
      world, *FabricPaths::make(*scenario::build_topology(scenario_of_lines(network)), world, {}),
      {});
}

TEST(FlowDurations, SistersOfADivisionSlowEachOtherDown) {
  const std::string network =
      "topology leaf-spine hosts=16 leaves=4 spines=1 rate=10gbit uplink-rate=10gbit\n";
  FlowDurations durations = durations_on(network, 16);
  const std::vector<std::uint32_t> apart = {0, 4, 8, 12};    // with three siblings over the spine
  const std::vector<std::uint32_t> odd = {0, 4, 8, 13};      // without siblings
  const std::vector<std::uint32_t> together = {0, 1, 2, 3};  // inside a leaf
  const auto of = [&durations](const std::vector<std::uint32_t>& ranks) {
    return *durations.collective({ranks, CollectiveKind::kAllReduce, 1 << 20, 0});
  };
  EXPECT_GT(of(apart).count(), 3 * of(odd).count());
  EXPECT_LT(of(together), of(apart));
  EXPECT_EQ(of(apart), of(apart));
}

TEST(FlowDurations, MoreThanTheLimitOfPairsIsSampled) {
  FlowDurations durations = durations_on("topology one-switch hosts=5000 rate=100gbit\n", 5000);
  std::vector<std::uint32_t> all;
  for (std::uint32_t rank = 0; rank < 5000; ++rank) {
    all.push_back(rank);
  }
  const auto took = durations.collective({all, CollectiveKind::kAllToAll, 5000 * 1000, 0});
  ASSERT_TRUE(took.ok());
  // 5 MB out of every host at 100 Gb/s, 94 % of it data: 425 us.
  EXPECT_NEAR(base::microseconds_of(*took), 425.0, 15.0);
  EXPECT_GT(durations.collective({all, CollectiveKind::kBarrier, 0, 0})->count(), 0);
}

class NoDurations final : public StageDurations {
 public:
  base::Result<base::Duration> collective(const StagedCollective&) override {
    return base::microseconds(7);
  }
  base::Result<base::Duration> message(std::uint32_t, std::uint32_t, std::uint64_t) override {
    return base::microseconds(8);
  }
};

TEST(MeasuredDurations, AreOnTheLineBetweenWhatWasMeasured) {
  NoDurations otherwise;
  const MeasuredTable table{"test",
                            {{CollectiveKind::kAllReduce, 2, 1, 1000, base::microseconds(10)},
                             {CollectiveKind::kAllReduce, 2, 1, 3000, base::microseconds(30)}}};
  const base::Result<MeasuredTable> read = parse_table(table_text(table));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->about, "test");
  MeasuredDurations durations(*read, otherwise);
  const std::vector<std::uint32_t> two = {0, 1};
  const auto of = [&](std::uint64_t bytes) {
    return durations.collective({two, CollectiveKind::kAllReduce, bytes, 0})->count() / 1000;
  };
  EXPECT_EQ(of(1), 10);
  EXPECT_EQ(of(1000), 10);
  EXPECT_EQ(of(2000), 20);
  EXPECT_EQ(of(3000), 30);
  EXPECT_TRUE(durations.uncovered().empty());
  EXPECT_EQ(of(6000), 60);
  EXPECT_EQ(*durations.uncovered().begin(), "all-reduce among 2 ranks 1 apart beyond 3000 bytes");
}

TEST(MeasuredDurations, WhatIsNotInTheTableIsSaid) {
  NoDurations otherwise;
  MeasuredDurations durations(
      {"", {{CollectiveKind::kAllReduce, 2, 1, 1000, base::microseconds(10)}}}, otherwise);
  const std::vector<std::uint32_t> apart = {0, 2};
  EXPECT_EQ(*durations.collective({apart, CollectiveKind::kAllReduce, 10, 0}),
            base::microseconds(7));
  EXPECT_EQ(*durations.message(0, 1, 10), base::microseconds(8));
  EXPECT_EQ(durations.uncovered(),
            (std::set<std::string>{"all-reduce among 2 ranks 2 apart", "messages"}));
}

TEST(MeasuredDurations, WhatFollowsOthersMayTakeLess) {
  NoDurations otherwise;
  const MeasuredTable table{
      "",
      {{CollectiveKind::kAllReduce, 2, 1, 1000, base::microseconds(10), base::microseconds(6)},
       {CollectiveKind::kBroadcast, 2, 1, 1000, base::microseconds(9)}}};
  MeasuredDurations durations(*parse_table(table_text(table)), otherwise);
  const std::vector<std::uint32_t> two = {0, 1};
  const auto of = [&](CollectiveKind kind, bool is_behind) {
    return *durations.collective({two, kind, 1000, 0, is_behind});
  };
  EXPECT_EQ(of(CollectiveKind::kAllReduce, false), base::microseconds(10));
  EXPECT_EQ(of(CollectiveKind::kAllReduce, true), base::microseconds(6));
  EXPECT_EQ(of(CollectiveKind::kBroadcast, true), base::microseconds(9));
}

TEST(MeasuredTable, HasMemoryWhereItWasMeasured) {
  MeasuredTable table;
  EXPECT_FALSE(parse_table(table_text(table))->memory);
  table.memory = {{0, 3}, 5 << 20};
  const base::Result<MeasuredTable> read = parse_table(table_text(table));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->memory->real, (std::vector<std::uint32_t>{0, 3}));
  EXPECT_EQ(read->memory->bytes, 5U << 20);
}

TEST(MeasuredTable, RefusesMemoryThatCannotBe) {
  for (const char* memory :
       {"5", "{}", R"({"real": [0], "bytes": -1})", R"({"real": [-1], "bytes": 1})",
        R"({"real": 0, "bytes": 1})", R"({"real": [0], "bytes": 99999999999999})"}) {
    const auto table =
        parse_table(std::string(R"({"table": 1, "rows": [], "memory": )") + memory + "}");
    ASSERT_FALSE(table.ok()) << memory;
    EXPECT_NE(table.status().message().find("memory"), std::string::npos);
  }
}

TEST(MeasuredDurations, RefusesWhatIsNoTable) {
  for (
      const char* text :
      {"", "[]", "{}", R"({"table": 2, "rows": []})", R"({"table": 1, "rows": [{}]})",
       R"({"table": 1, "rows": [{"kind": "all_reduce", "ranks": 2, "stride": 1, "bytes": 1, "us": -1}]})",
       R"({"table": 1, "rows": [{"kind": "all_reduce", "ranks": 2, "stride": 1, "bytes": 1, "us": 1, "behind_us": "2"}]})",
       R"({"table": 1, "rows": [{"kind": "dance", "ranks": 2, "stride": 1, "bytes": 1, "us": 1}]})"}) {
    const auto table = parse_table(text);
    ASSERT_FALSE(table.ok()) << text;
    EXPECT_FALSE(table.status().message().empty());
  }
}

}  // namespace
}  // namespace spillway::emulate
