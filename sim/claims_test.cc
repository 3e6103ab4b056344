// SPDX-License-Identifier: Apache-2.0
//
// Spillway's guarantees under congestion and failures: scenarios and the figures they must meet.
// Runs are functions of their seeds, so the figures never vary.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "sim/simulation.h"

namespace spillway::sim {
namespace {

ScenarioResult run(const std::string& name, const std::vector<std::string>& overrides = {}) {
  std::stringstream text;
  text << std::ifstream(SPILLWAY_TEST_DATA "/../scenarios/" + name).rdbuf();
  const base::Result<scenario::Scenario> scenario = scenario::parse_scenario(text.str(), overrides);
  EXPECT_TRUE(scenario.ok()) << scenario.status().message();
  base::Result<ScenarioResult> result = run_scenario(scenario.value());
  EXPECT_TRUE(result.ok()) << result.status().message();
  EXPECT_TRUE(result->finished);
  return std::move(result).value();
}

double p99_us(const ScenarioResult& result) {
  return static_cast<double>(result.completion.p99.count()) / 1000.0;
}

TEST(Claims, AGrayUplinkWithinTheBoundCostsUnderATenth) {
  for (const char* seed : {"seed=1", "seed=2", "seed=3"}) {
    const double clean = p99_us(run("gray_uplink.scn", {seed, "fault.share=0%"}));
    const ScenarioResult gray = run("gray_uplink.scn", {seed});
    EXPECT_LE(p99_us(gray), 1.10 * clean) << seed;
    EXPECT_GT(gray.network.lost, 0U) << seed;
  }
}

TEST(Claims, AnUplinkThatSwallowsEverythingCostsLessThanTenMilliseconds) {
  for (const char* seed : {"seed=1", "seed=2", "seed=3"}) {
    const ScenarioResult clean = run("gray_uplink.scn", {seed, "fault.share=0%"});
    const ScenarioResult hole = run("gray_uplink.scn", {seed, "fault.share=100%"});
    EXPECT_LE((hole.completion.max - clean.completion.max).count(), 10'000'000) << seed;
    EXPECT_GT(hole.network.lost, 100U) << seed;
  }
}

TEST(Claims, AnIncastOf64KeepsTheLinkFullAndTheTrimmedShareAtItsTarget) {
  for (const double target : {0.05, 0.10, 0.20}) {
    const ScenarioResult result =
        run("incast_oversend.scn", {"job.trimmed-target=" + std::to_string(target * 100) + "%"});
    const JobResult& job = result.jobs[0];
    EXPECT_LE(job.slowdown, 1.15) << target;
    EXPECT_EQ(dropped_packets(result.network.ports), 0U) << target;
    EXPECT_EQ(job.missing(), 0U) << target;
    const double share = static_cast<double>(job.trimmed) / static_cast<double>(job.packets);
    EXPECT_NEAR(share, target, 0.2 * target);
  }
}

TEST(Claims, AnOverloadedPortDropsTheUnimportant) {
  // Varies sizes: this workload draws nothing, so all its seeds give the same run. Below 15 MB the
  // first burst, which fills the queue before any early drop, is too large a part of it.
  for (const char* size : {"job.bytes=15MB", "job.bytes=20MB", "job.bytes=30MB"}) {
    const ScenarioResult result = run("overload_importance.scn", {size});
    const spillway_port_counters& ports = result.network.ports;
    // 40 % of the packets sent were important, 60 % not.
    const double important = static_cast<double>(ports.dropped[5]) / 0.4;
    const double unimportant = static_cast<double>(ports.dropped[0]) / 0.6;
    EXPECT_GT(unimportant, 500.0) << size;
    EXPECT_LT(important, unimportant / 10) << size;
  }
}

TEST(Claims, FrontLayersFinishFirstUnderOverload) {
  const ScenarioResult result = run("overload_importance.scn");
  // Pushes only: pulls start when their pushes have ended.
  std::map<int, base::Duration> latest;  // by priority
  for (const FlowRecord& record : result.flows) {
    if (record.flow.message.phase == wire::Phase::kReduce) {
      base::Duration& last = latest[record.flow.priority];
      last = std::max(last, record.end - record.start);
    }
  }
  ASSERT_GE(latest.size(), 3U);
  for (auto less = latest.begin(), more = std::next(less); more != latest.end(); ++less, ++more) {
    EXPECT_LT(more->second, less->second) << "priority " << more->first;
  }
}

TEST(Claims, SprayingBeatsOnePathPerFlow) {
  const std::vector<std::string> clean = {"fault.share=0%"};
  const std::vector<std::string> one_path = {"fault.share=0%", "job.paths=1"};
  EXPECT_LT(p99_us(run("gray_uplink.scn", clean)), 0.7 * p99_us(run("gray_uplink.scn", one_path)));
}

TEST(Claims, AnIncastCostsLittle) {
  EXPECT_LT(run("incast_trim.scn", {}).jobs[0].slowdown, 1.6);
}

}  // namespace
}  // namespace spillway::sim
