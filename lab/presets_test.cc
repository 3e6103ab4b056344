// SPDX-License-Identifier: Apache-2.0
#include "lab/presets.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lab/network/links.h"

namespace spillway::lab {
namespace {

TEST(Presets, AreScenariosThatALabCanBe) {
  for (const Preset& preset : presets()) {
    const base::Result<scenario::Scenario> scenario = scenario::parse_scenario(preset.text);
    ASSERT_TRUE(scenario.ok()) << preset.name << ": " << scenario.status().message();
    const base::Result<HostPlan> plan = make_host_plan(*scenario, {});
    ASSERT_TRUE(plan.ok()) << preset.name << ": " << plan.status().message();
    EXPECT_EQ(plan->hosts.size(), 4U) << preset.name;
  }
}

TEST(Presets, AreSomethingForTwoHostsToo) {
  for (const Preset& preset : presets()) {
    const std::vector<std::string> two = {"topology.hosts=2"};
    const base::Result<scenario::Scenario> scenario =
        scenario::parse_scenario(preset.text_for(2), two);
    ASSERT_TRUE(scenario.ok()) << preset.name << ": " << scenario.status().message();
    const base::Result<HostPlan> plan = make_host_plan(*scenario, {});
    ASSERT_TRUE(plan.ok()) << preset.name << ": " << plan.status().message();
    EXPECT_EQ(preset.text_for(4), preset.text) << preset.name;
  }
  const std::string congested = find_preset("congested")->text_for(2);
  EXPECT_NE(congested.find("tenant from=host1"), std::string::npos);
  EXPECT_EQ(congested.find("host3"), std::string::npos);
}

// The rates of the links between switches.
std::vector<base::BitRate> uplink_rates(std::string_view preset, const std::string& host_rate) {
  const std::vector<std::string> rate = {"topology.rate=" + host_rate};
  const auto scenario = scenario::parse_scenario(find_preset(preset)->text, rate);
  const base::Result<scenario::Topology> topology = scenario::build_topology(*scenario);
  std::vector<base::BitRate> rates;
  for (const scenario::Link& link : topology->links) {
    if (std::min(link.a, link.b) >= topology->hosts()) {
      rates.push_back(link.rate);
    }
  }
  return rates;
}

TEST(Presets, UplinksFollowTheHostsRate) {
  const std::vector<base::BitRate> one(2, base::bits_per_second(250'000'000));
  EXPECT_EQ(uplink_rates("oversubscribed", "250mbit"), one);
  const std::vector<base::BitRate> halves(8, base::bits_per_second(125'000'000));
  EXPECT_EQ(uplink_rates("spray", "250mbit"), halves);
}

TEST(Presets, TheGoodDayHasJumboFrames) {
  EXPECT_EQ(scenario::parse_scenario(find_preset("fast")->text)->topology.mtu, 9000U);
  EXPECT_EQ(scenario::parse_scenario(find_preset("clean")->text)->topology.mtu, kDefaultMtu);
}

// 100 Gb/s, RTT 10 us: 125 KB in flight. A queue holds one or two times as much.
TEST(Presets, DilatedDatacentresKeepTheirDimensionlessNumbers) {
  for (const Preset& preset : presets()) {
    if (preset.stands_for().find("100 Gb/s") == std::string_view::npos) {
      continue;
    }
    EXPECT_EQ(preset.slowdown(), 400) << preset.name;
    const auto scenario = scenario::parse_scenario(preset.text);
    const scenario::TopologyOptions& topology = scenario->topology;
    const int links = topology.kind == scenario::TopologyKind::kLeafSpine ? 8 : 4;
    const std::int64_t rtt_ns = links * topology.delay.count();
    EXPECT_EQ(rtt_ns, 400 * 10'000) << preset.name;
    EXPECT_EQ(topology.rate.count() * 400, 100'000'000'000) << preset.name;
    const double bdp = 1e-9 * static_cast<double>(rtt_ns * topology.rate.count()) / 8;
    EXPECT_GE(scenario->port.queue_bytes / bdp, 1.0) << preset.name;
    EXPECT_LE(scenario->port.queue_bytes / bdp, 2.2) << preset.name;
  }
}

TEST(Presets, ThoseThatStandForThemselvesAreNotSlowed) {
  EXPECT_EQ(find_preset("wan")->slowdown(), 1);
  EXPECT_EQ(find_preset("fast")->slowdown(), 1);
}

TEST(Presets, SayWhatTheyAre) {
  for (const Preset& preset : presets()) {
    EXPECT_TRUE(preset.text.starts_with("# ")) << preset.name;
    EXPECT_GT(preset.summary().size(), 20U) << preset.name;
    EXPECT_EQ(preset.summary().find('\n'), std::string_view::npos) << preset.name;
    EXPECT_NE(preset.text.find("\n# Stands for: "), std::string_view::npos) << preset.name;
    EXPECT_EQ(preset.stands_for().find('\n'), std::string_view::npos) << preset.name;
  }
}

TEST(Presets, AnUnknownOneListsTheKnown) {
  const base::Result<Preset> preset = find_preset("nonsense");
  ASSERT_FALSE(preset.ok());
  for (const Preset& known : presets()) {
    EXPECT_NE(preset.status().message().find(known.name), std::string::npos) << known.name;
    EXPECT_EQ(find_preset(known.name)->text, known.text);
  }
}

}  // namespace
}  // namespace spillway::lab
