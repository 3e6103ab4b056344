// SPDX-License-Identifier: Apache-2.0
#include "lab/presets.h"

#include <gtest/gtest.h>

#include "lab/network/host_plan.h"

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

TEST(Presets, SayWhatTheyAre) {
  for (const Preset& preset : presets()) {
    EXPECT_TRUE(preset.text.starts_with("# ")) << preset.name;
    EXPECT_GT(preset.summary().size(), 20U) << preset.name;
    EXPECT_EQ(preset.summary().find('\n'), std::string_view::npos) << preset.name;
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
