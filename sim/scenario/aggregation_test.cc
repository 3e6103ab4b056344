// SPDX-License-Identifier: Apache-2.0
#include "sim/scenario/aggregation.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "sim/scenario/scenario.h"

namespace spillway::scenario {
namespace {

// ------------------------------------------------------------------ switches that add

constexpr std::string_view kRacks = "topology leaf-spine hosts=4 leaves=2 spines=1\n";

std::string error_of(std::string_view lines) {
  const base::Result<Scenario> scenario = parse_scenario(std::string(kRacks).append(lines));
  if (!scenario.ok()) {
    return scenario.status().message();
  }
  const base::Result<Topology> topology = build_topology(*scenario);
  return topology.ok() ? "" : topology.status().message();
}

void expect_error(std::string_view lines, std::string_view part) {
  const std::string message = error_of(lines);
  EXPECT_NE(message.find(part), std::string::npos)
      << lines << ": '" << part << "' is not in: " << message;
}

Topology topology_of(std::string_view lines) {
  return build_topology(parse_scenario(std::string(kRacks).append(lines)).value()).value();
}

TEST(Aggregation, NoSwitchAddsUnlessALineSaysSo) {
  EXPECT_TRUE(topology_of("").adders.empty());
  EXPECT_EQ(topology_of("aggregate\n").adders.size(), 3U);
}

TEST(Aggregation, ALineIsForTheSwitchesItNames) {
  const Topology topology = topology_of(
      "aggregate switch=leaf* slots=100 policy=first-come lease=5ms\n"
      "aggregate switch=spine0 level=1 slots=7 policy=static pools=2 limits=1:3,9:4\n");
  ASSERT_EQ(topology.adders.size(), 3U);
  EXPECT_EQ(topology.adders[0].switch_number, 0U);
  EXPECT_EQ(topology.adders[0].config.slots, 100U);
  EXPECT_EQ(topology.adders[0].config.policy, SPILLWAY_SUM_FIRST_COME);
  EXPECT_EQ(topology.adders[0].config.level, 0);
  EXPECT_EQ(topology.adders[0].config.lease_us, 5000U);
  EXPECT_EQ(topology.adders[1].config.slots, 100U);
  const Adder& spine = topology.adders[2];
  EXPECT_EQ(spine.switch_number, 2U);
  EXPECT_EQ(spine.config.level, 1);
  EXPECT_EQ(spine.config.slots, 7U);
  EXPECT_EQ(spine.config.pools, 2U);
  ASSERT_EQ(spine.limits.size(), 2U);
  EXPECT_EQ(spine.limits[1].job, 9U);
  EXPECT_EQ(spine.limits[1].slots, 4U);
}

TEST(Aggregation, WhatMakesNoSenseIsRefusedWithItsPlace) {
  expect_error("aggregate slots=0\n", "line 2: aggregate slots=0");
  expect_error("aggregate policy=greedy\n", "static, first-come, preemptive");
  expect_error("aggregate level=2\n", "from 0 to 1");
  expect_error("aggregate lease=0\n", "from 1us");
  expect_error("aggregate limits=3\n", "1:64");
  expect_error("aggregate limits=1:2,1:3\n", "job 1 has two limits");
  expect_error("aggregate limits=1:0\n", "1:64");
  expect_error("aggregate slots=64 limits=7:100\n", "job 7 may hold 100 slots, but there are 64");
  expect_error("aggregate pools=2\n", "policy=static");
  expect_error("aggregate policy=static slots=2 pools=3\n", "3 pools of 2 slots");
  expect_error("aggregate switch=leaf7\n", "there is no switch leaf7; switches are leaf0, leaf1");
  expect_error("aggregate\naggregate switch=leaf1\n", "line 2 says already how leaf1 adds");
  expect_error("fault kind=restart from=1ms\n", "needs a switch");
}

TEST(Aggregation, ALimitNeedsARowInTheSwitchesTable) {
  // More jobs with the same first row than the table can probe.
  std::string limits;
  int jobs = 0;
  for (std::uint32_t job = 0; jobs <= SPILLWAY_SUM_PROBES; ++job) {
    if (spillway_sum_first_row(job + 1) == 0) {
      limits += fmt::format("{}{}:1", jobs == 0 ? "" : ",", job);
      const std::string message = error_of(fmt::format("aggregate limits={}\n", limits));
      EXPECT_EQ(message.empty(), jobs < SPILLWAY_SUM_PROBES) << message;
      ++jobs;
    }
  }
  expect_error(fmt::format("aggregate limits={}\n", limits), "no room");
}

TEST(Aggregation, ARestartIsAFaultOfASwitch) {
  const Scenario scenario = parse_scenario("fault kind=restart switch=leaf0 from=3ms\n").value();
  ASSERT_EQ(scenario.faults.size(), 1U);
  EXPECT_EQ(scenario.faults[0].kind, FaultKind::kRestart);
  EXPECT_EQ(scenario.faults[0].switch_name, "leaf0");
  EXPECT_EQ(scenario.faults[0].from, base::Instant(base::milliseconds(3)));
}

// ------------------------------------------------------------------ training jobs

base::Result<Scenario> parse_line(const std::string& keys) {
  return parse_scenario("training " + keys + "\n");
}

TEST(Training, OneValueIsForAllLayersAListForEach) {
  const Scenario scenario =
      parse_line("name=vgg workers=8 servers=1 bytes=64k,1MB,4MB forward=100us steps=3").value();
  ASSERT_EQ(scenario.trainings.size(), 1U);
  const Training& vgg = scenario.trainings[0];
  EXPECT_EQ(vgg.name, "vgg");
  EXPECT_EQ(vgg.hosts(), 9U);
  ASSERT_EQ(vgg.layers.size(), 3U);
  EXPECT_EQ(vgg.layers[2].bytes, base::bytes(4'000'000));
  EXPECT_EQ(vgg.layers[0].forward, base::microseconds(100));
  EXPECT_EQ(vgg.layers[2].forward, base::microseconds(100));
  EXPECT_EQ(parse_line("layers=5 bytes=1MB").value().trainings[0].layers.size(), 5U);
}

TEST(Training, UnnamedOnesAreNumbered) {
  const Scenario scenario = parse_scenario("training workers=2\ntraining workers=3\n").value();
  EXPECT_EQ(scenario.trainings[1].name, "training2");
}

TEST(Training, SaysWhatIsWrong) {
  const auto message = [](const std::string& keys) {
    const base::Result<Scenario> scenario = parse_line(keys);
    return scenario.ok() ? std::string() : scenario.status().message();
  };
  EXPECT_NE(message("layers=3 bytes=1MB,2MB").find("a list of 2 for 3 layers"), std::string::npos);
  EXPECT_NE(message("bytes=1MB,x").find("line 1"), std::string::npos);
  EXPECT_NE(message("bytes=2").find("4 bytes to 1GiB"), std::string::npos);
  EXPECT_NE(message("workers=1").find("2 to 128"), std::string::npos) << message("workers=1");
  EXPECT_NE(message("workers=100 servers=60").find("at most 128"), std::string::npos);
  EXPECT_NE(message("codec=levels bits=5").find("2, 3, 4 or 8"), std::string::npos);
}

}  // namespace
}  // namespace spillway::scenario
