// SPDX-License-Identifier: Apache-2.0
#include "sim/network.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/random.h"
#include "sim/network_testing.h"

namespace spillway::sim {
namespace {

using base::Instant;
using base::microseconds;
using base::nanoseconds;

constexpr Instant kNetworkEnd{base::seconds(10)};

// A network with one BlastStack on every host.
class BlastNetwork {
 public:
  explicit BlastNetwork(const scenario::Topology& topology, const BlastOptions& options = {},
                        std::uint64_t seed = 1)
      : network(topology, seed) {
    for (HostId host = 0; host < topology.hosts(); ++host) {
      auto stack = std::make_unique<BlastStack>(options);
      stacks.push_back(stack.get());
      network.add_stack(host, std::move(stack));
    }
  }

  void blast(HostId from, HostId to, std::uint64_t bytes, std::uint8_t priority = 0,
             std::uint8_t importance = SPILLWAY_IMPORTANCE_MARKED) {
    Flow flow;
    flow.id = next_flow_++;
    flow.from = from;
    flow.to = to;
    flow.bytes = bytes;
    flow.priority = priority;
    flow.importance = importance;
    network.start_flow(flow, 0);
  }

  // Every host sends to another one, in a permutation.
  void blast_permutation(std::uint64_t bytes) {
    const std::uint32_t hosts = network.hosts();
    for (HostId host = 0; host < hosts; ++host) {
      blast(host, (host + hosts / 2 + 1) % hosts, bytes);
    }
  }

  std::uint64_t trace_hash() const {
    std::uint64_t hash = 0;
    for (const BlastStack* stack : stacks) {
      for (const Arrival& arrival : stack->arrivals) {
        hash = base::derive_key(hash,
                                {arrival.from * 65536 + arrival.flow, arrival.number, arrival.bytes,
                                 static_cast<std::uint32_t>(arrival.at.since_zero().count())});
      }
    }
    return hash;
  }

  Network network;
  std::vector<BlastStack*> stacks;

 private:
  FlowId next_flow_ = 1;
};

scenario::Topology two_hosts() {
  return scenario::one_switch({.hosts = 2}).value();
}

scenario::Topology with_ports(scenario::Topology topology, const spillway_port_config& config) {
  topology.set_port_config(config);
  return topology;
}

std::uint64_t dropped_by_ports(const NetworkTotals& totals) {
  std::uint64_t dropped = 0;
  for (int reason = SPILLWAY_REASON_QUEUE_FULL; reason < SPILLWAY_REASONS; ++reason) {
    dropped += totals.ports.packets[reason];
  }
  return dropped;
}

TEST(Network, OnePacketTakesItsTimeOnEachLinkAndTheLinksDelays) {
  BlastNetwork blast(two_hosts(), {.frame_bytes = 1'226});  // 1,250 bytes on the wire: 100 ns
  blast.blast(0, 1, 1);
  blast.network.run_until(kNetworkEnd);
  ASSERT_EQ(blast.stacks[1]->arrivals.size(), 1U);
  EXPECT_EQ(blast.stacks[1]->arrivals[0].at, Instant(nanoseconds(2 * (100 + 1'000))));
  EXPECT_EQ(blast.stacks[1]->arrivals[0].from, 0U);
}

TEST(Network, BackToBackPacketsRunAtExactlyLineRate) {
  // 1,524 bytes at 100 Gb/s are 121.92 ns: 10,000 of them 1,219,200 ns, then one store and forward.
  BlastNetwork blast(two_hosts(), {.frame_bytes = 1'500});
  blast.blast(0, 1, 15'000'000);
  blast.network.run_until(kNetworkEnd);
  ASSERT_EQ(blast.stacks[1]->arrivals.size(), 10'000U);
  const std::int64_t last = blast.stacks[1]->arrivals.back().at.since_zero().count();
  EXPECT_NEAR(static_cast<double>(last), 1'219'200 + 121.92 + 2'000, 2.0);
}

TEST(Network, ASlowerLinkBehindAFastOnePacesTheArrivals) {
  scenario::Topology topology = two_hosts();
  topology.links[1].rate = base::gigabits_per_second(10);
  BlastNetwork blast(topology, {.frame_bytes = 1'226});
  blast.blast(0, 1, 10 * 1'226);
  blast.network.run_until(kNetworkEnd);
  const auto& arrivals = blast.stacks[1]->arrivals;
  ASSERT_EQ(arrivals.size(), 10U);
  for (std::size_t i = 1; i < arrivals.size(); ++i) {
    EXPECT_EQ(arrivals[i].at - arrivals[i - 1].at, nanoseconds(1'000));
    EXPECT_EQ(arrivals[i].number, i);
  }
}

TEST(Network, EveryPacketIsDeliveredDroppedLostOrOnItsWay) {
  for (int mode = SPILLWAY_PORT_DROP_TAIL; mode <= SPILLWAY_PORT_SPILLWAY; ++mode) {
    const auto config = dataplane::default_port_config(static_cast<spillway_port_mode>(mode));
    BlastNetwork blast(
        with_ports(scenario::leaf_spine({.hosts = 16, .leaves = 4, .spines = 2}).value(), config),
        {.labels = 16});
    ASSERT_TRUE(
        blast.network
            .add_fault({.kind = scenario::FaultKind::kLoss, .link = "leaf0->spine0", .share = 0.1})
            .ok());
    ASSERT_TRUE(
        blast.network
            .add_fault(
                {.kind = scenario::FaultKind::kDuplicate, .link = "leaf1->spine1", .share = 0.1})
            .ok());
    for (HostId host = 1; host < 16; ++host) {
      blast.blast(host, 0, 1'000'000);  // an incast that must overflow
      blast.blast(host, (host + 4) % 16, 300'000);
    }
    for (const std::int64_t until_us : {50, 200, 10'000'000}) {
      blast.network.run_until(Instant(microseconds(until_us)));
      const NetworkTotals totals = blast.network.totals();
      EXPECT_EQ(totals.sent + totals.duplicated, totals.delivered + dropped_by_ports(totals) +
                                                     totals.lost + blast.network.pool().in_use());
    }
    const NetworkTotals totals = blast.network.totals();
    EXPECT_EQ(blast.network.pool().in_use(), 0U);
    EXPECT_GT(totals.lost, 0U);
    EXPECT_GT(totals.duplicated, 0U);
    EXPECT_GT(dropped_by_ports(totals), 0U);
    EXPECT_EQ(totals.delivered_data, totals.delivered);
  }
}

TEST(Network, TheSameSeedGivesTheSameRunAndAnotherSeedAnother) {
  const auto run = [](std::uint64_t seed) {
    BlastNetwork blast(scenario::leaf_spine({.hosts = 16, .leaves = 4, .spines = 4}).value(),
                       {.labels = 7}, seed);
    EXPECT_TRUE(
        blast.network
            .add_fault({.kind = scenario::FaultKind::kLoss, .link = "leaf0->spine0", .share = 0.2})
            .ok());
    blast.blast_permutation(500'000);
    blast.network.run_until(kNetworkEnd);
    return blast.trace_hash();
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

TEST(Network, UrgentPacketsOvertakeWaitingOnes) {
  scenario::Topology topology = scenario::one_switch({.hosts = 3}).value();
  BlastNetwork blast(topology);
  blast.blast(0, 2, 75'000, /*priority=*/1);
  blast.blast(1, 2, 75'000, /*priority=*/7);
  blast.network.run_until(kNetworkEnd);
  Instant last_urgent;
  Instant last_other;
  for (const Arrival& arrival : blast.stacks[2]->arrivals) {
    (arrival.from == 1 ? last_urgent : last_other) = arrival.at;
  }
  ASSERT_EQ(blast.stacks[2]->arrivals.size(), 100U);
  // At most the packet on the wire delays the urgent ones: 50 urgent packets and one other.
  EXPECT_LE(last_urgent.since_zero().count(), 2'000 + 53 * 122);
  EXPECT_GE(last_other.since_zero().count(), 2'000 + 100 * 121);
}

TEST(Network, TrimmedPacketsArriveCutMarkedBySwitchAndWithTheirFirstBytes) {
  spillway_port_config config = dataplane::default_port_config(SPILLWAY_PORT_TRIM);
  config.queue_bytes = 10'000;
  scenario::Topology topology = with_ports(scenario::one_switch({.hosts = 3}).value(), config);
  Network network(topology, 1);
  std::vector<BlastStack*> stacks;
  for (HostId host = 0; host < 3; ++host) {
    auto stack = std::make_unique<BlastStack>(BlastOptions{.pool = &network.pool()});
    stacks.push_back(stack.get());
    network.add_stack(host, std::move(stack));
  }
  for (HostId host = 0; host < 2; ++host) {
    Flow flow;
    flow.from = host;
    flow.to = 2;
    flow.bytes = 150'000;
    network.start_flow(flow, 0);
  }
  network.run_until(kNetworkEnd);
  std::uint64_t trimmed = 0;
  for (const Arrival& arrival : stacks[2]->arrivals) {
    const bool is_cut = arrival.bytes != 1'500;
    EXPECT_EQ(arrival.dscp == SPILLWAY_DSCP_TRIMMED, is_cut);
    EXPECT_EQ(arrival.bytes, is_cut ? 256U : 1'500U);
    EXPECT_EQ(arrival.payload, std::vector<std::uint8_t>(arrival.bytes - kFrameHeaderBytes, 0xA5));
    trimmed += is_cut ? 1 : 0;
  }
  EXPECT_EQ(stacks[2]->arrivals.size(), 200U);  // none lost
  EXPECT_GT(trimmed, 50U);
  EXPECT_EQ(trimmed, network.totals().ports.packets[SPILLWAY_REASON_TRIMMED]);
}

TEST(Network, AnEcnPortMarksWhatPassesALongQueue) {
  spillway_port_config config = dataplane::default_port_config(SPILLWAY_PORT_ECN);
  config.red_min_bytes = config.red_max_bytes = 20'000;
  BlastNetwork blast(with_ports(scenario::one_switch({.hosts = 3}).value(), config));
  blast.blast(0, 2, 150'000);
  blast.blast(1, 2, 150'000);
  blast.network.run_until(kNetworkEnd);
  std::uint64_t marked = 0;
  for (const Arrival& arrival : blast.stacks[2]->arrivals) {
    marked += arrival.ecn == SPILLWAY_ECN_CE ? 1 : 0;
  }
  EXPECT_EQ(blast.stacks[2]->arrivals.size(), 200U);
  EXPECT_GT(marked, 50U);
  EXPECT_EQ(marked, blast.network.totals().ports.packets[SPILLWAY_REASON_MARKED]);
}

TEST(Network, AFatTreeReachesAllPairs) {
  const scenario::Topology topology = scenario::fat_tree({.k = 4}).value();
  BlastNetwork blast(topology);
  for (HostId from = 0; from < topology.hosts(); ++from) {
    for (HostId to = 0; to < topology.hosts(); ++to) {
      if (from != to) {
        blast.blast(from, to, 1);
      }
    }
  }
  blast.network.run_until(kNetworkEnd);
  for (HostId to = 0; to < topology.hosts(); ++to) {
    std::set<HostId> heard;
    for (const Arrival& arrival : blast.stacks[to]->arrivals) {
      heard.insert(arrival.from);
    }
    EXPECT_EQ(heard.size(), topology.hosts() - 1);
  }
}

std::map<std::string, std::uint64_t> packets_by_port(const Network& network) {
  std::map<std::string, std::uint64_t> packets;
  for (std::size_t i = 0; i < network.port_count(); ++i) {
    packets[network.port(i).name()] = network.port(i).transmitter().counters().packets;
  }
  return packets;
}

TEST(Network, PerFlowSpreadingKeepsAFlowOnOnePathAndManyFlowsOnAll) {
  BlastNetwork one_label(scenario::leaf_spine({.hosts = 8, .leaves = 2, .spines = 4}).value());
  one_label.blast(0, 7, 150'000);
  one_label.network.run_until(kNetworkEnd);
  auto packets = packets_by_port(one_label.network);
  int paths = 0;
  for (const char* spine : {"spine0", "spine1", "spine2", "spine3"}) {
    const std::uint64_t sent = packets[std::string("leaf0->") + spine];
    EXPECT_TRUE(sent == 0 || sent == 100);
    paths += sent > 0 ? 1 : 0;
  }
  EXPECT_EQ(paths, 1);

  BlastNetwork many_labels(scenario::leaf_spine({.hosts = 8, .leaves = 2, .spines = 4}).value(),
                           {.labels = 4'000});
  many_labels.blast(0, 7, 6'000'000);
  many_labels.network.run_until(kNetworkEnd);
  packets = packets_by_port(many_labels.network);
  for (const char* spine : {"spine0", "spine1", "spine2", "spine3"}) {
    EXPECT_NEAR(static_cast<double>(packets[std::string("leaf0->") + spine]), 1'000, 120);
  }
}

TEST(Network, PerPacketSpreadingUsesAllPathsEvenly) {
  scenario::Topology topology =
      scenario::leaf_spine({.hosts = 8, .leaves = 2, .spines = 4, .links = 2}).value();
  topology.spreading = scenario::Spreading::kPerPacket;
  BlastNetwork blast(topology);
  blast.blast(0, 7, 1'200'000);
  blast.network.run_until(kNetworkEnd);
  auto packets = packets_by_port(blast.network);
  for (const char* name :
       {"leaf0->spine0", "leaf0->spine0#2", "leaf0->spine3", "leaf0->spine3#2"}) {
    EXPECT_EQ(packets[name], 100U) << name;
  }
}

TEST(Network, StacksOfAHostShareItsCardInTurn) {
  Network network(two_hosts(), 1);
  std::vector<BlastStack*> receivers;
  for (int i = 0; i < 2; ++i) {
    network.add_stack(0, std::make_unique<BlastStack>(BlastOptions{}));
    auto stack = std::make_unique<BlastStack>(BlastOptions{});
    receivers.push_back(stack.get());
    network.add_stack(1, std::move(stack));
  }
  for (std::uint8_t stack = 0; stack < 2; ++stack) {
    Flow flow;
    flow.id = stack;
    flow.to = 1;
    flow.bytes = 150'000;
    network.start_flow(flow, stack);
  }
  network.run_until(kNetworkEnd);
  // Test packets go to stack 0.
  ASSERT_EQ(receivers[0]->arrivals.size(), 200U);
  for (std::size_t i = 1; i < 198; ++i) {
    EXPECT_NE(receivers[0]->arrivals[i].flow, receivers[0]->arrivals[i - 1].flow);
  }
}

TEST(Network, TellsTheDestinationOfAFlowBeforeTheSource) {
  BlastNetwork blast(two_hosts());
  blast.blast(0, 1, 1);
  EXPECT_TRUE(blast.stacks[1]->expected.empty());  // flows start after the call
  blast.network.run_until(Instant());
  EXPECT_EQ(blast.stacks[1]->expected, std::vector<FlowId>{1});
}

TEST(Network, RunsActionsAtTheirTimesAndStopsWhenTold) {
  BlastNetwork blast(two_hosts());
  std::vector<std::int64_t> times;
  bool stop = false;
  Network& network = blast.network;
  network.at(Instant(microseconds(300)), [&](Instant) { stop = true; });
  network.at(Instant(microseconds(5)), [&](Instant now) {
    times.push_back(now.since_zero().count());
    network.at(now + microseconds(100),
               [&](Instant later) { times.push_back(later.since_zero().count()); });
  });
  network.at(Instant(microseconds(400)), [&](Instant) { times.push_back(-1); });
  EXPECT_FALSE(network.run_until(Instant(microseconds(200)), stop));
  EXPECT_TRUE(network.run_until(kNetworkEnd, stop));
  EXPECT_EQ(times, (std::vector<std::int64_t>{5'000, 105'000}));
  EXPECT_EQ(network.now(), Instant(microseconds(300)));
}

TEST(Network, FiresTimersOnTimeAndOnceEach) {
  BlastNetwork blast(two_hosts());
  BlastStack& stack = *blast.stacks[0];
  stack.timer = Instant(microseconds(900));
  blast.network.wake(0);
  blast.network.run_until(Instant(microseconds(1)));
  stack.timer = Instant(microseconds(70));  // earlier than what is armed
  blast.network.wake(0);
  blast.network.run_until(Instant(microseconds(2)));
  blast.network.run_until(Instant(microseconds(100)));
  EXPECT_EQ(stack.timeouts, std::vector<Instant>{Instant(microseconds(70))});
  stack.timer = Instant(microseconds(2'000));
  blast.network.wake(0);
  blast.network.run_until(kNetworkEnd);
  EXPECT_EQ(stack.timeouts,
            (std::vector<Instant>{Instant(microseconds(70)), Instant(microseconds(2'000))}));
}

}  // namespace
}  // namespace spillway::sim
