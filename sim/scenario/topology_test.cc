// SPDX-License-Identifier: Apache-2.0
#include "sim/scenario/topology.h"

#include <gtest/gtest.h>

namespace spillway::scenario {
namespace {

TEST(Topology, BuildersGiveTheExpectedSizes) {
  const Topology star = one_switch({.hosts = 5}).value();
  EXPECT_EQ(star.nodes(), 6U);
  EXPECT_EQ(star.links.size(), 5U);

  const Topology leaves = leaf_spine({.hosts = 10, .leaves = 4, .spines = 2, .links = 3}).value();
  EXPECT_EQ(leaves.nodes(), 16U);
  EXPECT_EQ(leaves.links.size(), 10U + 4 * 2 * 3);
  EXPECT_EQ(leaves.node_name(10), "leaf0");
  EXPECT_EQ(leaves.node_name(15), "spine1");

  const Topology tree = fat_tree({.k = 6}).value();
  EXPECT_EQ(tree.hosts(), 54U);
  EXPECT_EQ(tree.switch_names.size(), 18U + 18 + 9);
  EXPECT_EQ(tree.links.size(), 3U * 54);
}

TEST(Topology, BuildersRefuseWhatCannotBeBuilt) {
  EXPECT_FALSE(one_switch({.hosts = 1}).ok());
  EXPECT_FALSE(one_switch({.hosts = UINT32_MAX}).ok());
  EXPECT_FALSE(one_switch({.hosts = 2, .rate = base::BitRate()}).ok());
  EXPECT_FALSE(leaf_spine({.hosts = 3, .leaves = 4}).ok());
  EXPECT_FALSE(leaf_spine({.spines = 0}).ok());
  EXPECT_FALSE(leaf_spine({.leaves = 2, .spines = UINT32_MAX}).ok());
  EXPECT_FALSE(fat_tree({.k = 3}).ok());
  EXPECT_FALSE(fat_tree({.k = 0}).ok());
  EXPECT_FALSE(fat_tree({.k = 1000}).ok());
}

TEST(Topology, PortSettingsApplyToAllLinksButTheirOwnBuffersStay) {
  Topology topology = one_switch({.hosts = 2}).value();
  topology.links[0].port.queue_bytes = 40'000;
  topology.links[0].own_buffer = true;
  spillway_port_config config = dataplane::default_port_config(SPILLWAY_PORT_SPILLWAY);
  config.queue_bytes = 20'000;
  config.early_drop_bytes = 10'000;
  topology.set_port_config(config);
  EXPECT_EQ(topology.links[0].port.queue_bytes, 40'000U);
  EXPECT_EQ(topology.links[0].port.early_drop_bytes, 20'000U);
  EXPECT_EQ(topology.links[1].port.queue_bytes, 20'000U);
}

constexpr std::string_view kDumbbell = R"(
# two switches, a slow link between them
switch left
switch right
host a
host b
link a left rate=100gbit delay=1us
link b right
link left right rate=10gbit delay=5us buffer=256k   # the bottleneck
)";

TEST(TopologyText, ReadsHostsSwitchesAndLinks) {
  const auto parsed = parse_topology(kDumbbell);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  const Topology& topology = *parsed;
  EXPECT_EQ(topology.host_names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(topology.switch_names, (std::vector<std::string>{"left", "right"}));
  ASSERT_EQ(topology.links.size(), 3U);
  EXPECT_EQ(topology.links[0].a, 0U);
  EXPECT_EQ(topology.links[0].b, 2U);
  EXPECT_EQ(topology.links[2].a, 2U);
  EXPECT_EQ(topology.links[2].b, 3U);
  EXPECT_EQ(topology.links[2].rate, base::gigabits_per_second(10));
  EXPECT_EQ(topology.links[2].delay, base::microseconds(5));
  EXPECT_EQ(topology.links[2].port.queue_bytes, 262'144U);
  EXPECT_TRUE(topology.links[2].own_buffer);
  EXPECT_FALSE(topology.links[1].own_buffer);
}

TEST(TopologyText, ErrorsNameTheLineAndTheOffender) {
  struct Case {
    std::string_view text;
    std::string_view words;
  };
  const Case cases[] = {
      {"host a\nhots b\n", "line 2: \"hots\""},
      {"host\n", "line 1: host takes one name"},
      {"host a\n\nswitch a\n", "line 3: a is declared twice"},
      {"host a\nlink a b\n", "line 2: b is not declared"},
      {"host a\nlink a\n", "line 2: link takes two names"},
      {"host a\nswitch s\nlink a s rate=fast\n", "line 3: \"fast\""},
      {"host a\nswitch s\nlink a s delay=1\n", "line 3: \"1\""},
      {"host a\nswitch s\nlink a s buffer=0\n", "line 3: a buffer of 0"},
      {"host a\nswitch s\nlink a s color=red\n", "line 3: \"color\""},
      {"host a\nswitch s\nlink a s rate\n", "line 3: \"\""},
      {"host a\nhost b\nlink a b\n", "link a b: hosts are joined"},
      {"host a\nhost b\nswitch s\nlink a s\n", "host b has 0 links"},
      {"host a\nhost b\nswitch s\nswitch t\nlink a s\nlink b t\n", "no path from host a to host b"},
      {"", "0 hosts"},
  };
  for (const Case& expected : cases) {
    const auto parsed = parse_topology(expected.text);
    ASSERT_FALSE(parsed.ok()) << expected.text;
    EXPECT_NE(parsed.status().message().find(expected.words), std::string::npos)
        << parsed.status().message();
  }
}

}  // namespace
}  // namespace spillway::scenario
