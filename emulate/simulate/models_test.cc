// SPDX-License-Identifier: Apache-2.0
//
// The communication models, compared with calculations by hand and with each other.
#include <gtest/gtest.h>

#include "base/random.h"
#include "emulate/emulate_testing.h"
#include "emulate/llm_step.h"
#include "emulate/simulate/flow_network.h"
#include "emulate/trace/reader.h"

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
  for (const CollectiveAlgorithm algorithm :
       {CollectiveAlgorithm::kRing, CollectiveAlgorithm::kDirect}) {
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
  const double ring =
      seconds_of(run_flows(world, network, {.algorithm = CollectiveAlgorithm::kRing}));
  const double added =
      seconds_of(run_flows(world, network, {.algorithm = CollectiveAlgorithm::kSwitch}));
  EXPECT_NEAR(added / ring, 8.0 / 14.0, 0.01);
}

TEST(FlowModel, SumsCrossEveryUplinkOnce) {
  // Four leaves whose uplinks together carry half of one host's link: a sum crosses them once each
  // way.
  const World world = all_reduce_world(32, 100'000'000);
  const std::string network =
      "topology leaf-spine hosts=32 leaves=4 spines=4 rate=100gbit uplink-rate=12.5gbit";
  const double added = seconds_of(
      run_flows(world, network, {.algorithm = CollectiveAlgorithm::kSwitch, .efficiency = 1.0}));
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
    for (const CollectiveAlgorithm algorithm :
         {CollectiveAlgorithm::kDirect, CollectiveAlgorithm::kRing}) {
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
      run_flows(all_reduce_world(8, 1 << 20), network, {.algorithm = CollectiveAlgorithm::kRing}));
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

// ------------------------------------------------------------------ the flow network

std::int64_t ns(base::Instant at) {
  return at.since_zero().count();
}

TEST(FlowNetwork, TwoLoadsShareALinkAndTheOneLeftGetsAllOfIt) {
  FlowNetwork network({1.0});
  const std::vector<LinkUse> uses = {{0, 1.0}};
  network.begin(uses, 100);
  network.begin(uses, 300);
  EXPECT_EQ(ns(network.next_end()), 200);  // 100 bytes at half a byte per nanosecond
  std::vector<FlowNetwork::LoadId> ended;
  network.advance(network.next_end(), ended);
  EXPECT_EQ(ended, std::vector<FlowNetwork::LoadId>{0});
  EXPECT_EQ(ns(network.next_end()), 400);  // 200 left, without competition
}

// The textbook example of two links: one load crosses both, the others one each.
TEST(FlowNetwork, RatesAreMaxMinFair) {
  FlowNetwork network({10.0, 4.0});
  const std::vector<LinkUse> both = {{0, 1.0}, {1, 1.0}};
  const std::vector<LinkUse> first = {{0, 1.0}};
  const std::vector<LinkUse> second = {{1, 1.0}};
  const auto a = network.begin(both, 1000);
  const auto b = network.begin(first, 1000);
  const auto c = network.begin(second, 1000);
  network.next_end();
  EXPECT_DOUBLE_EQ(network.rate(a), 2.0);
  EXPECT_DOUBLE_EQ(network.rate(b), 8.0);
  EXPECT_DOUBLE_EQ(network.rate(c), 2.0);
}

TEST(FlowNetwork, AWeightIsSoManyFlows) {
  FlowNetwork network({12.0});
  const std::vector<LinkUse> three = {{0, 3.0}};
  const std::vector<LinkUse> one = {{0, 1.0}};
  const auto a = network.begin(three, 30);
  const auto b = network.begin(one, 30);
  network.next_end();
  EXPECT_DOUBLE_EQ(network.rate(a), 3.0);
  EXPECT_DOUBLE_EQ(network.rate(b), 3.0);
}

TEST(FlowNetwork, LoadsThatShareNothingAreNotTouched) {
  FlowNetwork network({1.0, 1.0});
  const std::vector<LinkUse> here = {{0, 1.0}};
  const std::vector<LinkUse> there = {{1, 1.0}};
  network.begin(here, 1000);
  network.next_end();
  const std::uint64_t before = network.events();
  network.begin(there, 10);
  network.next_end();
  EXPECT_EQ(network.events(), before + 1);
}

TEST(FlowNetwork, WhatUsesNoLinkOrHasNoBytesEndsAtOnce) {
  FlowNetwork network({1.0});
  network.begin({}, 1000);
  const std::vector<LinkUse> uses = {{0, 1.0}};
  network.begin(uses, 0);
  EXPECT_EQ(ns(network.next_end()), 0);
  std::vector<FlowNetwork::LoadId> ended;
  network.advance(base::Instant(), ended);
  EXPECT_EQ(ended.size(), 2U);
  EXPECT_FALSE(network.has_open());
}

// No link exceeds its capacity, and every load has a full link on which no load has a higher rate.
TEST(FlowNetwork, RandomLoadsAreFeasibleAndFair) {
  base::RandomSequence random(7);
  for (int world = 0; world < 50; ++world) {
    std::vector<double> capacities;
    for (int i = 0; i < 12; ++i) {
      capacities.push_back(1.0 + static_cast<double>(random.next_below(9)));
    }
    FlowNetwork network(capacities);
    std::vector<std::vector<LinkUse>> uses(20);
    for (std::vector<LinkUse>& list : uses) {
      for (std::uint32_t link = 0; link < capacities.size(); ++link) {
        if (random.next_below(4) == 0) {
          list.push_back({link, 1.0 + static_cast<double>(random.next_below(3))});
        }
      }
      if (list.empty()) {
        list.push_back({0, 1.0});
      }
      network.begin(list, 1e6);
    }
    network.next_end();
    std::vector<double> used(capacities.size(), 0.0);
    for (std::uint32_t load = 0; load < uses.size(); ++load) {
      for (const LinkUse& use : uses[load]) {
        used[use.link] += use.weight * network.rate(load);
      }
    }
    for (std::size_t link = 0; link < used.size(); ++link) {
      EXPECT_LE(used[link], capacities[link] * (1 + 1e-9));
    }
    for (std::uint32_t load = 0; load < uses.size(); ++load) {
      bool has_bottleneck = false;
      for (const LinkUse& use : uses[load]) {
        bool is_most = used[use.link] > capacities[use.link] * (1 - 1e-9);
        for (std::uint32_t other = 0; is_most && other < uses.size(); ++other) {
          for (const LinkUse& theirs : uses[other]) {
            is_most &=
                theirs.link != use.link || network.rate(other) <= network.rate(load) * (1 + 1e-9);
          }
        }
        has_bottleneck |= is_most;
      }
      EXPECT_TRUE(has_bottleneck) << "load " << load << " of world " << world;
    }
  }
}

}  // namespace

}  // namespace spillway::emulate
