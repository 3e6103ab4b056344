// SPDX-License-Identifier: Apache-2.0
#include "lab/network/host_plan.h"

#include <gtest/gtest.h>

#include <set>

namespace spillway::lab {
namespace {

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

}  // namespace
}  // namespace spillway::lab
