// SPDX-License-Identifier: Apache-2.0
#include "lab/network/links.h"

#include <gtest/gtest.h>

namespace spillway::lab {
namespace {

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

}  // namespace
}  // namespace spillway::lab
