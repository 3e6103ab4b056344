// SPDX-License-Identifier: Apache-2.0
//
// The communication models, compared with calculations by hand and with each other.
#include <gtest/gtest.h>

#include "emulate/simulate/simulate_testing.h"
#include "emulate/synthesize/llm_step.h"
#include "emulate/trace/reader.h"
#include "emulate/trace/trace_testing.h"

namespace spillway::emulate {
namespace {

World all_reduce_world(std::uint32_t ranks, std::uint64_t bytes) {
  return world_of(std::vector<std::vector<Node>>(
      ranks, {collective_node(1, CollectiveKind::kAllReduce, bytes)}));
}

World llm_world(const LlmStepOptions& options) {
  GraphBuilder builder({});
  builder.set_source("llm", 0);
  EXPECT_TRUE(synthesize(options, builder).ok());
  return std::move(builder).finish();
}

TEST(FlowModel, AnAllReduceTakesTheTimeOfItsBytes) {
  for (const CutAlgorithm algorithm : {CutAlgorithm::kRing, CutAlgorithm::kDirect}) {
    const GraphRunResult result =
        run_flows(all_reduce_world(4, 100'000'000), "topology one-switch hosts=4 rate=100gbit",
                  {.algorithm = algorithm, .efficiency = 1.0});
    ASSERT_TRUE(result.status.ok()) << result.status.message();
    // 1.5 times 100 MB at 12.5 GB/s, plus a few microseconds.
    EXPECT_NEAR(seconds_of(result), 0.012, 0.00005);
  }
}

TEST(FlowModel, ASwitchThatAddsTakesNearlyHalfTheTime) {
  const World world = all_reduce_world(8, 100'000'000);
  const std::string network = "topology one-switch hosts=8 rate=100gbit";
  const double ring = seconds_of(run_flows(world, network, {.algorithm = CutAlgorithm::kRing}));
  const double added = seconds_of(run_flows(world, network, {.algorithm = CutAlgorithm::kSwitch}));
  EXPECT_NEAR(added / ring, 8.0 / 14.0, 0.01);
}

TEST(FlowModel, SumsCrossEveryUplinkOnce) {
  // Four leaves whose uplinks together carry half of one host's link: a sum crosses them once each
  // way.
  const World world = all_reduce_world(32, 100'000'000);
  const std::string network =
      "topology leaf-spine hosts=32 leaves=4 spines=4 rate=100gbit uplink-rate=12.5gbit";
  const double added = seconds_of(
      run_flows(world, network, {.algorithm = CutAlgorithm::kSwitch, .efficiency = 1.0}));
  EXPECT_NEAR(added, 100e6 * 8 / 50e9, 0.0005);
  EXPECT_GT(seconds_of(run_flows(world, network, {.efficiency = 1.0})), 5 * added);
}

TEST(FlowModel, TopologyAndRankCountChangeTheAnswer) {
  LlmStepOptions options;
  options.data = 32;
  options.layers = 4;
  const World small = llm_world(options);
  options.data = 64;
  const World large = llm_world(options);
  const std::string full =
      "topology leaf-spine hosts=64 leaves=4 spines=4 rate=25gbit uplink-rate=100gbit";
  const std::string thin =
      "topology leaf-spine hosts=64 leaves=4 spines=4 rate=25gbit uplink-rate=10gbit";
  const double at_full = seconds_of(run_flows(small, full));
  EXPECT_GT(seconds_of(run_flows(small, thin)), 1.2 * at_full);
  EXPECT_GT(seconds_of(run_flows(large, full)), 1.005 * at_full);
  // The same work on a network that is ten times as fast.
  const std::string fast =
      "topology leaf-spine hosts=64 leaves=4 spines=4 rate=250gbit uplink-rate=1000gbit";
  EXPECT_LT(seconds_of(run_flows(small, fast)), at_full);
}

TEST(FlowModel, InsideANodeDataDoesNotCrossTheNetwork) {
  const World world = all_reduce_world(8, 100'000'000);
  const std::string network = "topology one-switch hosts=8 rate=10gbit";
  const double outside = seconds_of(run_flows(world, network));
  const double inside = seconds_of(run_flows(
      world, network, {}, {.node_ranks = 8, .node_rate = base::gigabits_per_second(1000)}));
  EXPECT_NEAR(outside / inside, 100.0, 2.0);
}

TEST(FlowModel, TheSameTwiceIsTheSame) {
  LlmStepOptions options;
  options.data = 8;
  options.tensor = 2;
  options.pipeline = 4;
  options.layers = 8;
  options.micro_batches = 4;
  const World world = llm_world(options);
  const std::string network = "topology fat-tree k=8 rate=50gbit";
  const GraphRunResult first = run_flows(world, network);
  const GraphRunResult again = run_flows(world, network);
  ASSERT_TRUE(first.status.ok()) << first.status.message();
  EXPECT_EQ(first.ended, again.ended);
  EXPECT_EQ(first.events, again.events);
}

TEST(FlowModel, TooFewHostsAndTooLargeGroupsAreRefused) {
  const scenario::Topology topology =
      scenario::build_topology(scenario_of_lines("topology one-switch hosts=4")).value();
  EXPECT_FALSE(FabricPaths::make(topology, 5, {}).ok());
  EXPECT_FALSE(FabricPaths::make(topology, 4, {.paths = 0}).ok());
}

// ------------------------------------------------------------------ compared with packets

TEST(PacketModel, FlowsAreWithinAFewPercentOfPackets) {
  const std::string network =
      "topology leaf-spine hosts=16 leaves=4 spines=4 rate=10gbit spreading=packet\n";
  for (const std::uint64_t bytes : {4'000'000, 20'000'000}) {
    const World world = all_reduce_world(16, bytes);
    for (const CutAlgorithm algorithm : {CutAlgorithm::kDirect, CutAlgorithm::kRing}) {
      const GraphRunResult packets = run_packets(world, network, algorithm);
      ASSERT_TRUE(packets.status.ok()) << packets.status.message();
      const double flows = seconds_of(run_flows(world, network, {.algorithm = algorithm}));
      RecordProperty("ratio", std::to_string(flows / seconds_of(packets)));
      EXPECT_NEAR(flows / seconds_of(packets), 1.0, 0.15)
          << bytes << " bytes, algorithm " << static_cast<int>(algorithm);
    }
  }
}

TEST(PacketModel, EveryCollectiveEnds) {
  std::vector<Node> nodes;
  for (unsigned kind = 0; kind < kCollectiveKinds; ++kind) {
    nodes.push_back(collective_node(kind + 1, static_cast<CollectiveKind>(kind), 200'000));
  }
  const World world = world_of({nodes, nodes, nodes, nodes, nodes});
  const std::string network = "topology one-switch hosts=5 rate=10gbit";
  const GraphRunResult packets = run_packets(world, network);
  EXPECT_TRUE(packets.status.ok()) << packets.status.message();
  EXPECT_EQ(packets.transfers, kCollectiveKinds);
  const GraphRunResult flows = run_flows(world, network);
  EXPECT_TRUE(flows.status.ok()) << flows.status.message();
  EXPECT_EQ(flows.transfers, kCollectiveKinds);
}

TEST(PacketModel, ALostPacketDoesNotHangIt) {
  const GraphRunResult result = run_packets(
      all_reduce_world(4, 2'000'000),
      "topology one-switch hosts=4 rate=10gbit\nfault kind=loss link=host0->switch0 share=2%\n");
  EXPECT_TRUE(result.status.ok()) << result.status.message();
}

TEST(ForeignTraces, TheRingTakesAsLongAsTheAllReduceItIs) {
  const std::filesystem::path folder = foreign_traces();
  if (folder.empty()) {
    GTEST_SKIP() << "no ../shared/data/chakra beside the checkout";
  }
  const std::string network = "topology one-switch hosts=8 rate=10gbit\n";
  const World ring = read_world((folder / "ring_8npus_1MB").string(), {}).value();
  const GraphRunResult flows = run_flows(ring, network);
  const GraphRunResult packets = run_packets(ring, network);
  ASSERT_TRUE(flows.status.ok()) << flows.status.message();
  ASSERT_TRUE(packets.status.ok()) << packets.status.message();
  EXPECT_EQ(flows.nodes_run, 280U);
  EXPECT_EQ(packets.nodes_run, 280U);
  EXPECT_EQ(flows.transfers, 8U * 14);
  EXPECT_NEAR(seconds_of(flows) / seconds_of(packets), 1.0, 0.15);
  // 14 steps of 128 KiB and 7 of 7 us.
  const double whole = seconds_of(
      run_flows(all_reduce_world(8, 1 << 20), network, {.algorithm = CutAlgorithm::kRing}));
  EXPECT_NEAR(seconds_of(flows), whole + 49e-6, 0.02 * whole);
}

TEST(ForeignTraces, TheRealTraceRunsToItsEnd) {
  const std::filesystem::path folder = foreign_traces();
  if (folder.empty()) {
    GTEST_SKIP() << "no ../shared/data/chakra beside the checkout";
  }
  const World world = read_world((folder / "pytorch_real.0.et.gz").string(), {}).value();
  const GraphRunResult result = run_flows(world, "topology one-switch hosts=2");
  EXPECT_TRUE(result.status.ok()) << result.status.message();
  EXPECT_EQ(result.nodes_run, 3664U);
  EXPECT_EQ(result.transfers, 7U);
}

}  // namespace
}  // namespace spillway::emulate
