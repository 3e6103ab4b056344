// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <future>
#include <set>
#include <string>
#include <vector>

#include "lab/network/isolation.h"
#include "lab/network/lab_fabric.h"
#include "lab/network/links.h"

namespace spillway::lab {
namespace {

// ------------------------------------------------------------------ hosts

scenario::Scenario one_switch_of(std::uint32_t hosts) {
  scenario::Scenario scenario;
  scenario.topology.hosts = hosts;
  scenario.topology.rate = base::gigabits_per_second(1);
  return scenario;
}

TEST(HostPlan, NumbersHostsFromOne) {
  const base::Result<HostPlan> plan = make_host_plan(one_switch_of(2), {.mtu = 1500, .port = 9});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  ASSERT_EQ(plan->hosts.size(), 2U);
  const HostEntry& host = plan->hosts[1];
  EXPECT_EQ(host.name, "host1");
  EXPECT_EQ(host.port_interface, "port1");
  EXPECT_EQ(host.mac, "02:53:57:00:00:02");
  EXPECT_EQ(host.ipv4, "10.77.0.2");
  EXPECT_EQ(host.ipv6, "fd77::2");
  EXPECT_EQ(host.rate, base::gigabits_per_second(1));
  EXPECT_EQ(host.peer.to_string(), "10.77.0.2:9");
  EXPECT_EQ(host.listen, host.peer);
  EXPECT_EQ(plan->master_address, "10.77.0.1");
}

TEST(HostPlan, AddressesStayApartBeyondOneByte) {
  const base::Result<HostPlan> plan = make_host_plan(one_switch_of(kMaxHosts), {});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  std::set<std::string> seen;
  for (const HostEntry& host : plan->hosts) {
    seen.insert({host.ipv4, host.ipv6, host.mac, host.port_interface});
  }
  EXPECT_EQ(seen.size(), 4U * kMaxHosts);
  EXPECT_EQ(plan->hosts[255].ipv4, "10.77.1.0");
}

TEST(HostPlan, TrimsOnlyWhereTheFabricDoes) {
  scenario::Scenario scenario = one_switch_of(2);
  EXPECT_EQ(make_host_plan(scenario, {})->trim_bytes, scenario.port.trim_bytes);
  EXPECT_GT(scenario.port.trim_bytes, 0U);
  scenario.port.mode = SPILLWAY_PORT_DROP_TAIL;
  EXPECT_EQ(make_host_plan(scenario, {})->trim_bytes, 0U);
}

TEST(HostPlan, RefusesWhatCannotBeEmulated) {
  const auto message = [](const scenario::Scenario& scenario, unsigned mtu) {
    return make_host_plan(scenario, {.mtu = mtu}).status().message();
  };
  EXPECT_NE(message(one_switch_of(2), kMinMtu - 1).find("MTU 575"), std::string::npos);
  EXPECT_NE(message(one_switch_of(2), kMaxMtu + 1).find("MTU 9217"), std::string::npos);
  EXPECT_NE(message(one_switch_of(kMaxHosts + 1), 1500).find("too many"), std::string::npos);
  scenario::Scenario fast = one_switch_of(2);
  fast.topology.rate = base::gigabits_per_second(100);
  EXPECT_NE(message(fast, 1500).find("too fast"), std::string::npos);
}

TEST(HostPlan, HasNoIpv6BelowItsSmallestMtu) {
  EXPECT_EQ(make_host_plan(one_switch_of(2), {.mtu = kMinIpv6Mtu - 1})->hosts[0].ipv6, "");
  EXPECT_EQ(make_host_plan(one_switch_of(2), {.mtu = kMinIpv6Mtu})->hosts[0].ipv6, "fd77::1");
}

TEST(HostPlan, OnLoopbackHostsDifferByPort) {
  const net::SocketAddress any = net::SocketAddress::parse("127.0.0.1:1").value();
  const HostPlan plan = on_loopback(make_host_plan(one_switch_of(2), {}).value(),
                                    {any, any.with_port(2)}, {any.with_port(3), any.with_port(4)});
  EXPECT_EQ(plan.master_address, "127.0.0.1");
  EXPECT_EQ(plan.hosts[1].peer.port(), 2);
  EXPECT_EQ(plan.hosts[1].listen.port(), 4);
  EXPECT_EQ(plan.hosts[1].ipv4, "127.0.0.1");
}

HostPlan plan_of(std::uint32_t hosts, base::BitRate rate, unsigned mtu = 1500) {
  scenario::Scenario scenario;
  scenario.topology.hosts = hosts;
  scenario.topology.rate = rate;
  return make_host_plan(scenario, {.mtu = mtu}).value();
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(LinkBatches, PairsReachIntoTheHostsNamespaces) {
  const std::string batch = fabric_links_batch(plan_of(2, base::gigabits_per_second(1)), {5, 6});
  EXPECT_TRUE(contains(batch,
                       "link add name port1 mtu 1500 gso_max_segs 1 type veth peer name eth0 mtu "
                       "1500 address 02:53:57:00:00:02 gso_max_segs 1 netns /proc/self/fd/6\n"));
  EXPECT_TRUE(contains(batch, "link set dev port1 up\n"));
}

TEST(LinkBatches, HostsKnowAllOthersButNotThemselves) {
  const std::string batch = host_links_batch(plan_of(3, base::gigabits_per_second(1)), 1);
  EXPECT_TRUE(contains(batch, "address add 10.77.0.2/16 dev eth0\n"));
  EXPECT_TRUE(contains(batch, "address add fd77::2/64 dev eth0 nodad\n"));
  EXPECT_TRUE(
      contains(batch, "neighbour add 10.77.0.1 lladdr 02:53:57:00:00:01 dev eth0 nud permanent\n"));
  EXPECT_TRUE(
      contains(batch, "neighbour add fd77::3 lladdr 02:53:57:00:00:03 dev eth0 nud permanent\n"));
  EXPECT_FALSE(contains(batch, "neighbour add 10.77.0.2 "));
}

TEST(LinkBatches, SmallMtuMeansNoIpv6) {
  const std::string batch = host_links_batch(plan_of(2, base::gigabits_per_second(1), 1000), 0);
  EXPECT_FALSE(contains(batch, "fd77"));
  EXPECT_TRUE(contains(batch, "neighbour add 10.77.0.2 "));
}

TEST(LinkBatches, RoutesNameTheCongestionControl) {
  EXPECT_EQ(
      congestion_control_batch(plan_of(2, base::gigabits_per_second(1)), 1, "cubic"),
      "route change 10.77.0.0/16 dev eth0 proto kernel scope link src 10.77.0.2 congctl cubic\n"
      "route replace fd77::/64 dev eth0 proto kernel metric 256 congctl cubic\n");
  EXPECT_FALSE(contains(
      congestion_control_batch(plan_of(2, base::gigabits_per_second(1), 1000), 0, "bbr"), "fd77"));
}

TEST(LinkBatches, BurstsFollowTheRateButHoldTwoFrames) {
  EXPECT_EQ(
      host_shaping_batch(plan_of(2, base::gigabits_per_second(10)), 0),
      "qdisc add dev eth0 root tbf rate 10000000000bit overhead 24 burst 250000 limit 12500000\n");
  EXPECT_EQ(host_shaping_batch(plan_of(2, base::bits_per_second(1'000'000)), 0),
            "qdisc add dev eth0 root tbf rate 1000000bit overhead 24 burst 3028 limit 1000000\n");
}

// ------------------------------------------------------------------ isolation

TEST(Isolation, NamesGoBothWays) {
  for (const Isolation isolation :
       {Isolation::kAuto, Isolation::kRoot, Isolation::kUser, Isolation::kNone}) {
    const base::Result<Isolation> parsed = parse_isolation(isolation_name(isolation));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, isolation);
  }
  const base::Result<Isolation> unknown = parse_isolation("half");
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.status().message().find("auto, root, user, none"), std::string::npos);
}

TEST(Isolation, ResolvingDecides) {
  const base::Result<Isolation> resolved = resolve_isolation(Isolation::kAuto);
  ASSERT_TRUE(resolved.ok());
  EXPECT_NE(*resolved, Isolation::kAuto);
  EXPECT_EQ(*resolve_isolation(Isolation::kNone), Isolation::kNone);
}

// ------------------------------------------------------------------ the fabric

TEST(FabricSample, AddsUpItsPorts) {
  fabric::FabricSnapshot fabric;
  fabric.lost_to_faults = 1000;
  for (const unsigned scale : {1U, 10U}) {
    fabric::PortSnapshot& port = fabric.ports.emplace_back();
    port.sent_bytes = 5 * scale;
    port.queued_bytes = 7 * scale;
    port.lost_to_faults = 500;  // already in the fabric's total
    for (unsigned reason = 0; reason < SPILLWAY_REASONS; ++reason) {
      port.counters.packets[reason] = scale;
    }
  }
  const FabricSample sample = sample_of(fabric, base::milliseconds(3));
  EXPECT_EQ(sample.at, base::milliseconds(3));
  EXPECT_EQ(sample.sent_bytes, 55U);
  EXPECT_EQ(sample.queued_bytes, 77U);
  EXPECT_EQ(sample.deepest_bytes, 70U);
  EXPECT_EQ(sample.trimmed, 11U);
  EXPECT_EQ(sample.lost, 1000U + 4 * 11U);  // full, early, red, control full
}

TEST(FabricSample, AFabricWithoutPortsHasNothing) {
  const FabricSample sample = sample_of({}, {});
  EXPECT_EQ(sample.queued_bytes, 0U);
  EXPECT_EQ(sample.deepest_bytes, 0U);
}

TEST(FabricSampler, LooksAgainAndAgainUntilItGoes) {
  std::vector<FabricSample> samples;
  std::promise<void> third;
  std::uint64_t looks = 0;
  {
    const FabricSampler sampler(
        [&looks] {
          fabric::FabricSnapshot fabric;
          fabric.lost_to_faults = ++looks;
          return fabric;
        },
        [&samples, &third](const FabricSample& sample) {
          samples.push_back(sample);
          if (samples.size() == 3) {
            third.set_value();
          }
        });
    third.get_future().wait();
  }
  ASSERT_GE(samples.size(), 3U);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    EXPECT_EQ(samples[i].lost, i + 1);
    EXPECT_TRUE(i == 0 || samples[i].at - samples[i - 1].at >= kSampleEvery);
  }
}

TEST(FabricSampler, OneThatGoesAtOnceHasLookedOnce) {
  int samples = 0;
  {
    const FabricSampler sampler([] { return fabric::FabricSnapshot(); }, [&](auto&) { ++samples; });
  }
  EXPECT_EQ(samples, 1);
}

TEST(FabricSampler, LongRunsAreLookedAtLessOften) {
  EXPECT_EQ(sample_pause(1), kSampleEvery);
  EXPECT_EQ(sample_pause(kSamplesPerPace), kSampleEvery);
  EXPECT_EQ(sample_pause(kSamplesPerPace + 1), kSampleEvery * 2);
  EXPECT_EQ(sample_pause(2 * kSamplesPerPace + 1), kSampleEvery * 4);
  EXPECT_GT(sample_pause(static_cast<std::size_t>(-1)), base::Duration());
}

// ------------------------------------------------------------------ pace

Pace pace(base::Duration delay, double mean_late_us, std::uint64_t missed = 0, double stolen = 0) {
  const scenario::Topology topology = scenario::one_switch({.hosts = 3, .delay = delay}).value();
  fabric::FabricSnapshot fabric;
  fabric.mean_late_us = mean_late_us;
  fabric.p99_late_us = 4 * mean_late_us;
  fabric.missed_in = missed;
  return pace_of(topology, fabric, stolen);
}

TEST(Pace, AFabricThatKeepsUpSaysNothing) {
  EXPECT_TRUE(pace(base::microseconds(10), 49.0).kept_up());
  EXPECT_EQ(pace_sentence(pace(base::microseconds(10), 49.0)), "");
  EXPECT_TRUE(pace(base::microseconds(10), 0.0).kept_up());  // in the kernel
}

TEST(Pace, OneThatFellBehindSaysHowFarAndTheRemedy) {
  Pace late = pace(base::microseconds(10), 300.0);
  EXPECT_EQ(pace_sentence(late),
            "the emulated fabric fell behind: frames left 300 us late on average, 1200 us at p99 "
            "(tolerable: up to 50 on average)");
  late.remedy = "give --rate 125mbit";
  EXPECT_TRUE(pace_sentence(late).ends_with("on average); give --rate 125mbit"));
}

TEST(Pace, WhereHostsAreFarApartMoreIsBearable) {
  EXPECT_TRUE(pace(base::milliseconds(10), 1'999.0).kept_up());
  EXPECT_FALSE(pace(base::milliseconds(10), 2'001.0).kept_up());
}

TEST(Pace, SlowLinksTolerateAQuarterOfAPacketsTime) {
  const scenario::Topology topology =
      scenario::one_switch({.hosts = 3, .rate = base::bits_per_second(15'380'000)}).value();
  EXPECT_DOUBLE_EQ(pace_of(topology, {}, 0.0).limit_us, 200.0);
}

TEST(Pace, AFabricThatLosesFramesItselfDidNotKeepUp) {
  EXPECT_FALSE(pace(base::microseconds(10), 1.0, 7).kept_up());
  EXPECT_NE(pace_sentence(pace(base::microseconds(10), 1.0, 7)).find("itself lost 7"),
            std::string::npos);
}

TEST(Pace, AMachineThatWasNotThereMeasuredNothing) {
  const Pace robbed = pace(base::microseconds(10), 1.0, 0, 0.21);
  EXPECT_FALSE(robbed.kept_up());
  EXPECT_NE(pace_sentence(robbed).find("took 21 %"), std::string::npos);
  EXPECT_TRUE(pace(base::microseconds(10), 1.0, 0, kMaxStolen).kept_up());
}

TEST(ProcessorTimes, AreThoseOfAllProcessorsTogether) {
  const ProcessorTimes before =
      parse_processor_times("cpu  100 10 50 800 5 0 5 30 7 7\ncpu0 1 1 1 1 1 1 1 1\n");
  EXPECT_EQ(before.all, 1000U);
  EXPECT_EQ(before.stolen, 30U);
  const ProcessorTimes after = parse_processor_times("cpu  150 10 50 800 5 0 5 80 7 7");
  EXPECT_DOUBLE_EQ(stolen_share(before, after), 0.5);
  EXPECT_EQ(stolen_share(after, before), 0.0);
}

TEST(ProcessorTimes, AreZeroWhereTheKernelSaysNothing) {
  for (const char* text : {"", "cpu", "cpu 1 2 3", "intr 1 2 3 4 5 6 7 8 9"}) {
    EXPECT_EQ(parse_processor_times(text).stolen, 0U) << text;
  }
  EXPECT_EQ(stolen_share({}, {}), 0.0);
}

}  // namespace

}  // namespace spillway::lab
