// SPDX-License-Identifier: Apache-2.0
#include "sim/scenario/topology.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "sim/host.h"
#include "sim/link.h"
#include "sim/network.h"
#include "sim/network_testing.h"

namespace spillway::sim {
namespace {

using base::Instant;
using base::microseconds;
using base::nanoseconds;

constexpr Instant kEnd{base::seconds(10)};
constexpr std::uint64_t kPackets = 20'000;
constexpr std::uint32_t kFrame = 1'226;  // 100 ns on the wire at 100 Gb/s

struct Blast {
  explicit Blast(const std::vector<scenario::Fault>& faults, bool real_bytes = false,
                 std::uint64_t packets = kPackets)
      : network(scenario::one_switch({.hosts = 2}).value(), 1) {
    for (HostId host = 0; host < 2; ++host) {
      auto stack = std::make_unique<BlastStack>(
          BlastOptions{.frame_bytes = kFrame, .pool = real_bytes ? &network.pool() : nullptr});
      stacks.push_back(stack.get());
      network.add_stack(host, std::move(stack));
    }
    for (const scenario::Fault& fault : faults) {
      const base::Status status = network.add_fault(fault);
      EXPECT_TRUE(status.ok()) << status.message();
    }
    Flow flow;
    flow.to = 1;
    flow.bytes = packets * kFrame;
    network.start_flow(flow, 0);
    network.run_until(kEnd);
  }

  const std::vector<Arrival>& arrivals() const { return stacks[1]->arrivals; }
  double lost_share() const {
    return 1.0 - static_cast<double>(arrivals().size()) / static_cast<double>(kPackets);
  }

  Network network;
  std::vector<BlastStack*> stacks;
};

scenario::Fault on_link(scenario::FaultKind kind, double share) {
  scenario::Fault fault;
  fault.kind = kind;
  fault.link = "switch0->host1";
  fault.share = share;
  return fault;
}

// Mean length of runs of missing packets.
double mean_gap(const std::vector<Arrival>& arrivals) {
  std::uint64_t gaps = 0;
  std::uint64_t missing = 0;
  for (std::size_t i = 1; i < arrivals.size(); ++i) {
    const std::uint32_t between = arrivals[i].number - arrivals[i - 1].number - 1;
    gaps += between > 0 ? 1 : 0;
    missing += between;
  }
  return gaps == 0 ? 0.0 : static_cast<double>(missing) / static_cast<double>(gaps);
}

TEST(Faults, RandomLossLosesItsShareInShortGaps) {
  const Blast blast({on_link(scenario::FaultKind::kLoss, 0.05)});
  EXPECT_NEAR(blast.lost_share(), 0.05, 0.006);
  EXPECT_LT(mean_gap(blast.arrivals()), 1.2);
  EXPECT_EQ(blast.network.totals().lost, kPackets - blast.arrivals().size());
}

TEST(Faults, BurstyLossLosesTheSameShareInLongGaps) {
  scenario::Fault fault = on_link(scenario::FaultKind::kBursty, 0.05);
  fault.burst_packets = 10;
  const Blast blast({fault});
  EXPECT_NEAR(blast.lost_share(), 0.05, 0.02);
  EXPECT_NEAR(mean_gap(blast.arrivals()), 10.0, 3.0);
}

TEST(Faults, ABurstDoesNotOutliveALongPause) {
  scenario::Fault fault = on_link(scenario::FaultKind::kBursty, 0.3);
  fault.burst_packets = 1000;  // practically endless
  LinkFaults faults;
  faults.add(fault, 7, base::gigabits_per_second(1));
  PacketPool pool;
  Packet packet;
  Instant now;
  while (!faults.act(packet, pool, now).lost) {
    now = now + microseconds(12);
  }
  int lost = 0;
  for (int i = 0; i < 200; ++i) {
    now = now + base::seconds(1);
    lost += faults.act(packet, pool, now).lost ? 1 : 0;
  }
  EXPECT_LT(lost, 20);  // each may begin a burst of its own, with a small probability
}

TEST(Faults, AGrayLinkMayLoseEverythingButOnlyWhileItIsGray) {
  scenario::Fault fault = on_link(scenario::FaultKind::kGray, 1.0);
  fault.from = Instant(microseconds(500));
  fault.until = Instant(microseconds(700));
  const Blast blast({fault});
  EXPECT_NEAR(static_cast<double>(kPackets - blast.arrivals().size()), 2'000, 2);
  for (const Arrival& arrival : blast.arrivals()) {
    const Instant sent = arrival.at - nanoseconds(1'100);
    EXPECT_TRUE(sent < fault.from || sent >= fault.until);
  }
}

TEST(Faults, OnlyTheNamedDirectionSuffers) {
  scenario::Fault fault = on_link(scenario::FaultKind::kGray, 1.0);
  fault.link = "host1->switch0";
  EXPECT_EQ(Blast({fault}).arrivals().size(), kPackets);
}

TEST(Faults, DuplicatesArriveTwiceAndNothingElseChanges) {
  const Blast blast({on_link(scenario::FaultKind::kDuplicate, 0.1)});
  EXPECT_NEAR(static_cast<double>(blast.arrivals().size()), 1.1 * kPackets, 150);
  EXPECT_EQ(blast.network.totals().duplicated, blast.arrivals().size() - kPackets);
}

TEST(Faults, ReorderingHoldsBackItsShareAndLosesNone) {
  scenario::Fault fault = on_link(scenario::FaultKind::kReorder, 0.1);
  fault.delay = microseconds(10);
  const Blast blast({fault});
  ASSERT_EQ(blast.arrivals().size(), kPackets);
  std::uint64_t overtaken = 0;
  std::uint32_t highest = 0;
  for (const Arrival& arrival : blast.arrivals()) {
    overtaken += arrival.number < highest ? 1 : 0;
    highest = std::max(highest, arrival.number);
    // The delay bounds the arrival; the packet's number implies when it was sent.
    EXPECT_LE(arrival.at, Instant(nanoseconds(2'200 + 100 * arrival.number + 10'000)));
  }
  EXPECT_NEAR(static_cast<double>(overtaken), 0.1 * kPackets, 200);
}

TEST(Faults, CorruptionFlipsBitsOfRealBytesAndFlagsSizeOnlyPackets) {
  const Blast real({on_link(scenario::FaultKind::kCorrupt, 0.1)}, /*real_bytes=*/true, 2'000);
  ASSERT_EQ(real.arrivals().size(), 2'000U);
  std::uint64_t damaged = 0;
  for (const Arrival& arrival : real.arrivals()) {
    ASSERT_EQ(arrival.payload.size(), kFrame - kFrameHeaderBytes);
    const auto wrong = std::ranges::count_if(arrival.payload, [](auto b) { return b != 0xA5; });
    EXPECT_LE(wrong, 8);
    damaged += wrong > 0 ? 1 : 0;
    EXPECT_FALSE(arrival.corrupt);
  }
  EXPECT_NEAR(static_cast<double>(damaged), 200, 45);

  const Blast sized({on_link(scenario::FaultKind::kCorrupt, 0.1)});
  const auto flagged =
      std::ranges::count_if(sized.arrivals(), [](const Arrival& a) { return a.corrupt; });
  EXPECT_NEAR(static_cast<double>(flagged), 0.1 * kPackets, 150);
}

TEST(Faults, ADeadHostNeitherSendsNorReceives) {
  for (const HostId dead : {0U, 1U}) {
    scenario::Fault fault;
    fault.kind = scenario::FaultKind::kHostDeath;
    fault.host = dead;
    fault.from = Instant(microseconds(100));
    Blast blast({fault});
    const std::size_t expected = dead == 0 ? 1'000 : 978;  // 2.2 us of packets were on their way
    EXPECT_NEAR(static_cast<double>(blast.arrivals().size()), static_cast<double>(expected), 2);
    EXPECT_EQ(blast.network.pool().in_use(), 0U);
  }
}

TEST(Faults, ALinkThatIsDownIsAvoidedWhereThereIsAnotherWay) {
  scenario::Topology topology =
      scenario::leaf_spine({.hosts = 4, .leaves = 2, .spines = 2}).value();
  const auto delivered = [&](scenario::FaultKind kind) {
    Network network(topology, 1);
    for (HostId host = 0; host < 4; ++host) {
      network.add_stack(host, std::make_unique<BlastStack>(BlastOptions{.labels = 1'000}));
    }
    scenario::Fault fault;
    fault.kind = kind;
    fault.link = "leaf0->spine0";
    EXPECT_TRUE(network.add_fault(fault).ok());
    Flow flow;
    flow.to = 3;
    flow.bytes = 1'500'000;
    network.start_flow(flow, 0);
    network.run_until(kEnd);
    return network.totals().delivered;
  };
  EXPECT_EQ(delivered(scenario::FaultKind::kDown), 1'000U);
  EXPECT_NEAR(static_cast<double>(delivered(scenario::FaultKind::kGray)), 500, 60);
}

TEST(Faults, ASkewedHostSeesItsOwnTimeAndItsTimersFireByIt) {
  scenario::Fault fault;
  fault.kind = scenario::FaultKind::kClockSkew;
  fault.host = 0;
  fault.skew_ppm = 100'000;  // 10% fast
  fault.delay = microseconds(50);
  Network network(scenario::one_switch({.hosts = 2}).value(), 1);
  auto owned = std::make_unique<BlastStack>(BlastOptions{});
  BlastStack& stack = *owned;
  network.add_stack(0, std::move(owned));
  ASSERT_TRUE(network.add_fault(fault).ok());
  stack.timer = Instant(microseconds(1'150));  // by its own clock; 1,000 us by the network's
  network.wake(0);
  network.run_until(kEnd);
  EXPECT_EQ(network.now(), Instant(microseconds(1'000)));
  EXPECT_EQ(stack.timeouts, std::vector<Instant>{Instant(microseconds(1'150))});
}

TEST(HostClock, FindsTheFirstInstantThatShowsATime) {
  for (const std::int64_t ppb : {0, 1, -1, 123'456, -99'999, 100'000'000, -100'000'000}) {
    const HostClock clock(ppb, microseconds(3));
    for (const std::int64_t t :
         {3'001LL, 10'000LL, 1'234'567LL, 5'000'000'000LL, 86'400'000'000'000LL}) {
      const Instant shown(nanoseconds(t));
      const Instant found = clock.network_time(shown);
      EXPECT_GE(clock.host_time(found), shown) << ppb;
      EXPECT_LT(clock.host_time(found - nanoseconds(1)), shown) << ppb;
    }
    EXPECT_EQ(clock.network_time(transport::kNever), transport::kNever);
  }
}

TEST(Faults, WhatMakesNoSenseIsRefusedWithAReason) {
  Network network(scenario::one_switch({.hosts = 2}).value(), 1);
  const auto refused = [&](const scenario::Fault& fault, std::string_view words) {
    const base::Status status = network.add_fault(fault);
    EXPECT_FALSE(status.ok()) << words;
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
  };
  refused({.kind = scenario::FaultKind::kLoss}, "needs a link");
  refused({.kind = scenario::FaultKind::kHostDeath}, "needs a host");
  refused({.kind = scenario::FaultKind::kHostDeath, .host = 2}, "no host 2");
  refused({.kind = scenario::FaultKind::kLoss, .link = "leaf7->spine9"}, "no link leaf7->spine9");
  refused(on_link(scenario::FaultKind::kLoss, 1.5), "share of 1.5");
  refused({.kind = scenario::FaultKind::kBursty, .link = "switch0->host1", .burst_packets = 0.5},
          "bursts");
  refused(
      {.kind = scenario::FaultKind::kReorder, .link = "switch0->host1", .delay = nanoseconds(-1)},
      "delay");
  refused({.kind = scenario::FaultKind::kClockSkew, .host = 0, .skew_ppm = 1e9}, "skew");
  refused({.kind = scenario::FaultKind::kClockSkew, .host = 0, .from = Instant(nanoseconds(1))},
          "beginning");
  refused({.kind = scenario::FaultKind::kLoss,
           .link = "switch0->host1",
           .from = Instant(nanoseconds(2)),
           .until = Instant(nanoseconds(1))},
          "end before");
}

}  // namespace
}  // namespace spillway::sim
