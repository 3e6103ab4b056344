// SPDX-License-Identifier: Apache-2.0
#include "emulate/simulate/graph_run.h"

#include <gtest/gtest.h>

#include "emulate/emulate_testing.h"

namespace spillway::emulate {
namespace {

GraphRunResult run_recorded(const World& world, const GraphRunOptions& options = {}) {
  const Matches matches(world);
  RecordedModel model;
  return GraphRun(world, matches, model, options).run();
}

std::int64_t us(base::Instant at) {
  return at.since_zero().count() / 1000;
}

Node reduce_for(std::uint64_t id, std::vector<std::uint64_t> deps, std::int64_t microseconds) {
  Node node = collective_node(id, CollectiveKind::kAllReduce, 64, "", std::move(deps));
  node.duration = base::microseconds(microseconds);
  return node;
}

TEST(GraphRun, ACollectiveBeginsWhenTheLastMemberArrives) {
  const World world =
      world_of({{compute_node(1, {}, base::microseconds(10)), reduce_for(2, {1}, 5)},
                {compute_node(1, {}, base::microseconds(30)), reduce_for(2, {1}, 5)}});
  GraphRunOptions options;
  options.keeps_times = true;
  const GraphRunResult result = run_recorded(world, options);
  EXPECT_TRUE(result.status.ok()) << result.status.message();
  EXPECT_EQ(us(result.ended), 35);
  EXPECT_EQ(us(result.times[0][1].began), 10);
  EXPECT_EQ(us(result.times[0][1].ended), 35);
  // The path leads over the rank that the others waited for.
  const std::vector<NodePlace> path = critical_path(result);
  ASSERT_GE(path.size(), 2U);
  EXPECT_EQ(path.front().rank, 1U);
  EXPECT_NE(timeline_page("<two>", world, result).find("&lt;two&gt;"), std::string::npos);
}

TEST(GraphRun, ARankComputesOneThingAtATimeAndHostsBesideDevices) {
  std::vector<Node> nodes = {compute_node(1, {}, base::microseconds(10)),
                             compute_node(2, {}, base::microseconds(10)),
                             compute_node(3, {}, base::microseconds(15))};
  nodes[2].on_host = true;
  const GraphRunResult result = run_recorded(world_of({nodes}));
  EXPECT_EQ(us(result.ended), 20);
  EXPECT_EQ(result.ranks[0].computing, base::microseconds(20)) << "time on both counts once";
}

TEST(GraphRun, ARankThatDiesInsideANodeComputesUntilThen) {
  const World world = world_of({{compute_node(1, {}, base::microseconds(60))},
                                {compute_node(1, {}, base::microseconds(100))}});
  GraphRunOptions dead;
  dead.faults = {{1, 1.0, base::Instant(base::microseconds(40))}};
  const GraphRunResult result = run_recorded(world, dead);
  EXPECT_EQ(us(result.ended), 60);
  EXPECT_EQ(result.ranks[0].computing, base::microseconds(60));
  EXPECT_EQ(result.ranks[1].computing, base::microseconds(40));
}

TEST(GraphRun, ComputingAfterTheEndOfTheRunDoesNotCount) {
  const World world = world_of({{compute_node(1, {}, base::microseconds(10))},
                                {compute_node(1, {}, base::microseconds(100))}});
  GraphRunOptions dead;
  dead.faults = {{1, 1.0, base::Instant(base::microseconds(40))}};
  const GraphRunResult died = run_recorded(world, dead);
  EXPECT_EQ(us(died.ended), 10);
  EXPECT_EQ(died.ranks[1].computing, base::microseconds(10));

  const std::vector<Node> nodes = {compute_node(1, {}, base::microseconds(10)),
                                   compute_node(2, {1}, base::microseconds(10))};
  GraphRunOptions limited;
  limited.limit = base::microseconds(5);
  const GraphRunResult stopped = run_recorded(world_of({nodes}), limited);
  EXPECT_EQ(stopped.status.code(), base::StatusCode::kTimedOut);
  EXPECT_EQ(stopped.ranks[0].computing, stopped.ended - base::Instant());
}

TEST(GraphRun, ANodeThatDependsOnItselfIsNotRun) {
  const GraphRunResult result =
      run_recorded(world_of({{compute_node(1, {}, base::microseconds(10)),
                              compute_node(2, {1, 2}, base::microseconds(10))}}));
  EXPECT_NE(result.status.message().find("node 2 depends on itself"), std::string::npos)
      << result.status.message();
}

TEST(GraphRun, ASendDoesNotWaitForItsReceive) {
  // As a ring is traced: every rank sends, then receives.
  const auto rank = [](std::uint32_t to, std::uint32_t from) {
    return std::vector<Node>{message_node(1, NodeKind::kSend, to, 10),
                             message_node(2, NodeKind::kReceive, from, 10, {1})};
  };
  const GraphRunResult result = run_recorded(world_of({rank(1, 2), rank(2, 0), rank(0, 1)}));
  EXPECT_TRUE(result.status.ok()) << result.status.message();
  EXPECT_EQ(result.nodes_run, 6U);
}

TEST(GraphRun, ARunThatCannotEndNamesArrivedAndMissingRanks) {
  const auto call = [](std::uint64_t id) {
    return collective_node(id, CollectiveKind::kBroadcast, 8, "g");
  };
  const GraphRunResult result = run_recorded(world_of(
      {{call(1)}, {call(1)}, {compute_node(1, {2}), compute_node(2, {1})}}, {{"g", {0, 1, 2}}}));
  EXPECT_EQ(result.status.code(), base::StatusCode::kMismatch);
  EXPECT_EQ(
      result.status.message(),
      "0 of 4 nodes were run; the rest cannot run\n  broadcast 0 of group 'g': ranks 0-1 arrived, "
      "rank 2 did not");
}

TEST(GraphRun, ADeadRankIsNamedAndASlowOneWaitedFor) {
  const std::vector<Node> nodes = {compute_node(1, {}, base::microseconds(10)),
                                   reduce_for(2, {1}, 1), compute_node(3, {2}),
                                   reduce_for(4, {3}, 1)};
  const World world = world_of({nodes, nodes});
  GraphRunOptions slow;
  slow.faults = {{1, 3.0}};
  EXPECT_EQ(us(run_recorded(world, slow).ended), 30 + 1 + 3 + 1);
  GraphRunOptions dead;
  dead.faults = {{1, 1.0, base::Instant(base::microseconds(11))}};
  const GraphRunResult result = run_recorded(world, dead);
  EXPECT_NE(
      result.status.message().find("all-reduce 1 of all ranks: rank 0 arrived, rank 1 did not"),
      std::string::npos)
      << result.status.message();
}

TEST(GraphRun, TheLimitEndsARunThatTakesLonger) {
  GraphRunOptions options;
  options.limit = base::microseconds(5);
  const GraphRunResult result = run_recorded(
      world_of({{compute_node(1, {}, base::microseconds(10)), compute_node(2, {1})}}), options);
  EXPECT_EQ(result.status.code(), base::StatusCode::kTimedOut);
}

}  // namespace
}  // namespace spillway::emulate
