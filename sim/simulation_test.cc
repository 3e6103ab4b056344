// SPDX-License-Identifier: Apache-2.0
#include "sim/simulation.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "sim/results.h"

namespace spillway::sim {
namespace {

// ------------------------------------------------------------------ simulations

scenario::Scenario parsed(std::string_view text, std::vector<std::string> overrides = {}) {
  base::Result<scenario::Scenario> scenario = scenario::parse_scenario(text, overrides);
  EXPECT_TRUE(scenario.ok()) << scenario.status().message();
  return std::move(scenario).value();
}

ScenarioResult run(const scenario::Scenario& scenario, const RunOptions& options = {}) {
  base::Result<ScenarioResult> result = run_scenario(scenario, options);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return std::move(result).value();
}

std::string error_of(std::string_view text) {
  const base::Result<ScenarioResult> result = run_scenario(parsed(text));
  return result.ok() ? "" : result.status().message();
}

scenario::Scenario from_file(const std::string& name, std::vector<std::string> overrides = {}) {
  std::ostringstream text;
  text << std::ifstream(SPILLWAY_TEST_DATA "/../scenarios/" + name).rdbuf();
  return parsed(text.str(), std::move(overrides));
}

constexpr std::string_view kPair =
    "topology one-switch hosts=2 rate=10gbit delay=1us\n"
    "switch mode=drop-tail queue=1MB\n"
    "job protocol=newreno pattern=incast bytes=10MB\n";

TEST(Simulation, LongFlowFillsItsLink) {
  const ScenarioResult result = run(parsed(kPair));
  ASSERT_TRUE(result.finished);
  const JobResult& job = result.jobs.at(0);
  EXPECT_EQ(job.ended, 1U);
  // 1,460 of 1,538 bytes on the wire are payload.
  EXPECT_GT(job.goodput_bps, 0.99 * 10e9 * 1460 / 1538);
  EXPECT_LT(job.goodput_bps, 1.0 * 10e9 * 1460 / 1538);
  EXPECT_EQ(job.stacks.data_resent, 0U);
}

TEST(Simulation, RunsOfOneScenarioAreTheSameAndSeedsDiffer) {
  const auto fingerprint = [](const std::string& seed) {
    const ScenarioResult result = run(from_file("two_jobs.scn", {"seed=" + seed}));
    return std::pair(result.events, result.end);
  };
  EXPECT_EQ(fingerprint("1"), fingerprint("1"));
  EXPECT_NE(fingerprint("1"), fingerprint("2"));
}

TEST(Simulation, RivalsScenariosFinish) {
  for (const char* name : {"dctcp_incast.scn", "two_jobs.scn", "gray_link.scn", "background.scn"}) {
    const ScenarioResult result = run(from_file(name));
    EXPECT_TRUE(result.finished) << name;
    for (const JobResult& job : result.jobs) {
      EXPECT_EQ(job.failed, 0U) << name;
      EXPECT_EQ(job.missing(), 0U) << name;
    }
  }
}

TEST(Simulation, DctcpKeepsTheQueueWhereMarksBegin) {
  const std::string_view text =
      "topology one-switch hosts=3 rate=10gbit delay=5us\n"
      "switch mode=ecn queue=1MB ecn=65k\n"
      "job protocol=dctcp pattern=incast bytes=5MB\n";
  const ScenarioResult result = run(parsed(text));
  ASSERT_TRUE(result.finished);
  EXPECT_GT(result.network.ports.packets[SPILLWAY_REASON_MARKED], 0U);
  EXPECT_EQ(dropped_packets(result.network.ports), 0U);
  EXPECT_EQ(result.jobs[0].stacks.data_resent, 0U);
  EXPECT_LT(result.jobs[0].slowdown, 1.1);
  // Without marks the same flows overflow the same queue.
  const ScenarioResult blind =
      run(parsed(text, {"job.protocol=newreno", "switch.mode=drop-tail", "switch.queue=200k"}));
  EXPECT_GT(dropped_packets(blind.network.ports), 0U);
}

TEST(Simulation, IncastOnAShallowQueueCostsTheRivalTimeoutsUnlessItProbesItsTails) {
  const ScenarioResult plain = run(from_file("dctcp_incast.scn"));
  const ScenarioResult probing = run(from_file("dctcp_incast.scn", {"job.tail-loss-probe=yes"}));
  ASSERT_TRUE(plain.finished && probing.finished);
  EXPECT_GT(plain.jobs[0].stacks.timeouts, 0U);
  EXPECT_EQ(probing.jobs[0].stacks.timeouts, 0U);
  EXPECT_GE(probing.jobs[0].slowdown, 1.0);
  EXPECT_LT(probing.jobs[0].slowdown, plain.jobs[0].slowdown);
}

TEST(Simulation, GrayLinkLosesPacketsThatTheRivalRepairs) {
  const ScenarioResult result = run(from_file("gray_link.scn"));
  ASSERT_TRUE(result.finished);
  EXPECT_GT(result.network.lost, 0U);
  EXPECT_GT(result.jobs[0].stacks.data_resent, 0U);
  EXPECT_EQ(result.jobs[0].missing(), 0U);
}

TEST(Simulation, StepsFollowEachOther) {
  const ScenarioResult result =
      run(parsed("topology one-switch hosts=4 rate=10gbit\n"
                 "switch mode=ecn\n"
                 "job protocol=dctcp pattern=permutation bytes=100k steps=3\n"));
  ASSERT_TRUE(result.finished);
  std::vector<base::Instant> first_start(3, base::Instant(base::seconds(1)));
  std::vector<base::Instant> last_end(3);
  for (const FlowRecord& record : result.flows) {
    const std::uint32_t step = record.flow.message.operation;
    first_start[step] = std::min(first_start[step], record.start);
    last_end[step] = std::max(last_end[step], record.end);
  }
  EXPECT_EQ(first_start[1], last_end[0]);
  EXPECT_EQ(first_start[2], last_end[1]);
}

TEST(Simulation, ComputingDelaysAWorkersPushes) {
  const ScenarioResult result = run(parsed(
      "topology one-switch hosts=3 rate=10gbit\n"
      "switch mode=ecn\n"
      "job protocol=dctcp pattern=parameter-server servers=1 layers=2 bytes=20k compute=100us\n"));
  ASSERT_TRUE(result.finished);
  for (const FlowRecord& record : result.flows) {
    if (record.flow.message.phase == wire::Phase::kReduce) {
      const base::Duration expected =
          base::microseconds(record.flow.message.signature == 0 ? 100 : 50);
      EXPECT_EQ(record.start, base::Instant(expected));
    }
  }
}

TEST(Simulation, LimitLeavesFlowsUnfinishedAndSaysSo) {
  const ScenarioResult result = run(parsed(kPair, {"limit=1ms"}));
  EXPECT_FALSE(result.finished);
  EXPECT_EQ(result.jobs[0].ended, 0U);
  EXPECT_EQ(result.jobs[0].failed, 0U);
}

TEST(Simulation, FlowsToAHostThatDiedEndAtOnce) {
  const ScenarioResult result =
      run(parsed(std::string(kPair) + "fault kind=host-death host=0 from=1ms\n"));
  EXPECT_TRUE(result.finished);
  EXPECT_EQ(result.jobs[0].failed, 1U);
  EXPECT_EQ(result.flows.at(0).end, base::Instant(base::milliseconds(1)));
}

TEST(Simulation, RunDoesNotWaitForBackground) {
  const ScenarioResult result =
      run(parsed("topology one-switch hosts=4 rate=10gbit\n"
                 "switch mode=ecn\n"
                 "job protocol=dctcp bytes=10k\n"
                 "background load=10% until=100ms\n"));
  EXPECT_TRUE(result.finished);
  EXPECT_LT(result.end, base::Instant(base::milliseconds(10)));
  EXPECT_EQ(result.completion.count, 4U);
}

TEST(Simulation, PartsThatDoNotFitGetASentenceWithTheirPlace) {
  EXPECT_NE(error_of("topology one-switch hosts=4\njob hosts=5\n").find("line 2"),
            std::string::npos);
  EXPECT_NE(error_of("job first-host=100\n").find("line 1"), std::string::npos);
  EXPECT_NE(error_of("seed 1\n").find("no 'job'"), std::string::npos);
  EXPECT_NE(error_of("topology file=x\njob\n").find("file x"), std::string::npos);
  EXPECT_NE(error_of("job\nfault kind=loss link=a->b share=1%\n").find("a->b"), std::string::npos);
  EXPECT_NE(error_of("job bytes=1GB\n").find("a Spillway message"), std::string::npos);
}

TEST(Simulation, TopologyMayComeAsText) {
  scenario::Scenario scenario =
      parsed("topology file=x\nswitch mode=ecn\njob protocol=dctcp bytes=10k\n");
  scenario.topology.file_text =
      "switch s\nhost a\nhost b\nlink a s rate=10gbit delay=1us\nlink b s rate=10gbit delay=1us\n";
  const ScenarioResult result = run(scenario);
  EXPECT_TRUE(result.finished);
  EXPECT_EQ(result.host_names, (std::vector<std::string>{"a", "b"}));
}

TEST(ChromeTrace, HasABarPerFlowAndCountersThatRise) {
  const ScenarioResult result = run(from_file("dctcp_incast.scn"), {.sample_counters = true});
  const std::string trace = chrome_trace_of(result);
  std::size_t bars = 0;
  for (std::size_t at = trace.find("\"ph\":\"X\""); at != std::string::npos;
       at = trace.find("\"ph\":\"X\"", at + 1)) {
    ++bars;
  }
  EXPECT_EQ(bars, 16U);
  EXPECT_NE(trace.find("\"ph\":\"C\""), std::string::npos);
  ASSERT_FALSE(result.samples.empty());
  EXPECT_LE(result.samples.size(), 4096U);
  for (std::size_t i = 1; i < result.samples.size(); ++i) {
    EXPECT_LT(result.samples[i - 1].at, result.samples[i].at);
    EXPECT_LE(result.samples[i - 1].marked, result.samples[i].marked);
  }
  EXPECT_GT(result.samples.back().marked, 0U);
}

TEST(ChromeTrace, QuotesNames) {
  ScenarioResult result;
  result.jobs.emplace_back();
  result.jobs.back().name = "a\"b\\c";
  EXPECT_NE(chrome_trace_of(result).find(R"(a\"b\\c)"), std::string::npos);
}

// ------------------------------------------------------------------ results

base::Duration us(std::int64_t count) {
  return base::microseconds(count);
}

FlowRecord record(HostId from, HostId to, std::uint64_t bytes, std::int64_t start_us,
                  std::int64_t end_us, FlowEnd end = FlowEnd::kDone) {
  FlowRecord record{};
  record.flow.from = from;
  record.flow.to = to;
  record.flow.bytes = bytes;
  record.start = base::Instant(us(start_us));
  record.end = base::Instant(us(end_us));
  record.started = record.ended = true;
  record.result.end = end;
  record.result.packets = 10;
  record.result.delivered = 9;
  return record;
}

TEST(Results, SlowdownIsAgainstTheBusiestHostLink) {
  JobResult result;
  // 2 x 125 kB to host 0: 200 us at 10 Gbit/s.
  add_flow_figures({{record(1, 0, 125'000, 0, 150), record(2, 0, 125'000, 10, 300)}},
                   base::gigabits_per_second(10), result);
  EXPECT_EQ(result.makespan, us(300));
  EXPECT_DOUBLE_EQ(result.slowdown, 1.5);
  EXPECT_NEAR(result.goodput_bps, 0.9 * 250'000 * 8 / 300e-6, 1.0);  // a tenth is missing
  EXPECT_EQ(result.packets, 20U);
  EXPECT_EQ(result.missing(), 2U);
}

TEST(Results, GoodputCountsWholePacketsOnly) {
  FlowRecord trimmed = record(1, 0, 100'000, 0, 100);
  trimmed.result.delivered = 10;
  trimmed.result.trimmed = 4;
  JobResult result;
  add_flow_figures({{trimmed}}, base::gigabits_per_second(10), result);
  EXPECT_DOUBLE_EQ(result.whole_share(), 0.6);
  EXPECT_NEAR(result.goodput_bps, 60'000 * 8 / 100e-6, 1.0);
}

TEST(Results, FlowsThatFailedOrDidNotEndAreToldApart) {
  FlowRecord unfinished = record(3, 0, 1000, 0, 0);
  unfinished.ended = false;
  JobResult result;
  add_flow_figures(
      {{record(1, 0, 1000, 0, 100), record(2, 0, 1000, 0, 200, FlowEnd::kPeerDead), unfinished}},
      base::gigabits_per_second(10), result);
  EXPECT_EQ(result.flows, 3U);
  EXPECT_EQ(result.ended, 1U);
  EXPECT_EQ(result.failed, 1U);
  EXPECT_EQ(result.bytes, 1000U);
  EXPECT_EQ(result.completion.count, 1U);
  EXPECT_EQ(result.slowdown, 0.0);
}

TEST(Results, DropsAreSummedOverReasons) {
  spillway_port_counters counters = {};
  counters.packets[SPILLWAY_REASON_ADMITTED] = 100;
  counters.packets[SPILLWAY_REASON_TRIMMED] = 50;
  counters.packets[SPILLWAY_REASON_QUEUE_FULL] = 1;
  counters.packets[SPILLWAY_REASON_EARLY] = 2;
  counters.packets[SPILLWAY_REASON_RED] = 3;
  counters.packets[SPILLWAY_REASON_CONTROL_FULL] = 4;
  EXPECT_EQ(dropped_packets(counters), 10U);
}

}  // namespace
}  // namespace spillway::sim
