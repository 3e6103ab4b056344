// SPDX-License-Identifier: Apache-2.0
#include "sim/routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "sim/scenario/topology_text.h"

namespace spillway::sim {
namespace {

TEST(Routing, LeafSpineGoesUpByEverySpineAndDownByOnePort) {
  const scenario::Topology topology =
      scenario::leaf_spine({.hosts = 8, .leaves = 2, .spines = 3}).value();
  const std::vector<Routes> routes = shortest_routes(topology);
  const Routes& leaf0 = routes[0];
  EXPECT_EQ(leaf0.ports(leaf0.group_of(1)).size(), 1U);  // its own host
  EXPECT_EQ(leaf0.ports(leaf0.group_of(7)).size(), 3U);
  EXPECT_EQ(leaf0.group_of(6), leaf0.group_of(7));  // the same choice, stored once
  const Routes& spine0 = routes[2];
  EXPECT_EQ(spine0.ports(spine0.group_of(0)).size(), 1U);
  EXPECT_NE(spine0.group_of(0), spine0.group_of(7));
}

TEST(Routing, AFatTreeHasAllItsEqualPaths) {
  const scenario::Topology topology = scenario::fat_tree({.k = 4}).value();
  const std::vector<Routes> routes = shortest_routes(topology);
  const Routes& edge0 = routes[0];
  EXPECT_EQ(edge0.ports(edge0.group_of(0)).size(), 1U);
  EXPECT_EQ(edge0.ports(edge0.group_of(2)).size(), 2U);   // same pod
  EXPECT_EQ(edge0.ports(edge0.group_of(15)).size(), 2U);  // another pod
  const Routes& aggregation0 = routes[8];
  EXPECT_EQ(aggregation0.ports(aggregation0.group_of(15)).size(), 2U);
  EXPECT_EQ(aggregation0.ports(aggregation0.group_of(0)).size(), 1U);
}

TEST(Routing, DoesNotGoThroughHostsOrLongerPaths) {
  // A triangle of switches: the direct link only, although there is a path around.
  const auto parsed = scenario::parse_topology(
      "switch x\nswitch y\nswitch z\nhost a\nhost b\nlink a x\nlink b y\n"
      "link x y\nlink x z\nlink z y\n");
  ASSERT_TRUE(parsed.ok());
  const std::vector<Routes> routes = shortest_routes(*parsed);
  EXPECT_TRUE(
      std::ranges::equal(routes[0].ports(routes[0].group_of(1)), std::array{PortNumber{1}}));
  EXPECT_TRUE(
      std::ranges::equal(routes[2].ports(routes[2].group_of(1)), std::array{PortNumber{1}}));
}

// The neighbour that a switch's port leads to; ports are numbered in the order of the links.
scenario::NodeId neighbour(const scenario::Topology& topology, scenario::NodeId node,
                           PortNumber port) {
  PortNumber next = 0;
  for (const scenario::Link& link : topology.links) {
    if ((link.a == node || link.b == node) && next++ == port) {
      return link.a == node ? link.b : link.a;
    }
  }
  return node;
}

// Whichever port a switch chooses, the next switch does not route back.
void expect_no_way_back(const scenario::Topology& topology) {
  const std::vector<Routes> routes = shortest_routes(topology);
  const std::uint32_t hosts = topology.hosts();
  for (HostId host = 0; host < hosts; ++host) {
    for (scenario::NodeId at = hosts; at < hosts + routes.size(); ++at) {
      const Routes& here = routes[at - hosts];
      for (const PortNumber port : here.ports(here.group_of(host))) {
        const scenario::NodeId next = neighbour(topology, at, port);
        if (next < hosts) {
          EXPECT_EQ(next, host);
          continue;
        }
        const Routes& there = routes[next - hosts];
        for (const PortNumber onward : there.ports(there.group_of(host))) {
          EXPECT_NE(neighbour(topology, next, onward), at);
        }
      }
    }
  }
}

TEST(Routing, NoSwitchSendsBackWhereItCameFrom) {
  expect_no_way_back(scenario::leaf_spine({.hosts = 8, .leaves = 2, .spines = 3}).value());
  expect_no_way_back(scenario::fat_tree({.k = 4}).value());
}

}  // namespace
}  // namespace spillway::sim
