// SPDX-License-Identifier: Apache-2.0
#include "lab/supervisor.h"

#include <gtest/gtest.h>

namespace spillway::lab {
namespace {

LabOutcome sample_outcome() {
  LabOutcome outcome;
  outcome.exit_codes = {0, 3, 137};
  outcome.interrupted_by = 2;
  outcome.first_failed = 1;
  outcome.over_limit = true;
  outcome.fabric.frames_in = 11;
  outcome.fabric.latest_us = 12;
  outcome.fabric.mean_late_us = 1.5;
  outcome.fabric.tenant_bytes = 1ULL << 42;
  outcome.fabric.wanted_bytes = 1ULL << 43;
  fabric::PortSnapshot& port = outcome.fabric.ports.emplace_back();
  port.name = "switch0->host0";
  port.sent_bytes = 1ULL << 40;
  port.queued_bytes = 7;
  port.counters.packets[SPILLWAY_REASON_TRIMMED] = 5;
  port.counters.dropped[7] = 6;
  port.counters.dropped_control = 8;
  sim::AdderTotals& adder = outcome.fabric.adders.emplace_back();
  adder.name = "leaf0";
  adder.config.slots = 64;
  adder.config.policy = SPILLWAY_SUM_PREEMPTIVE;
  adder.config.level = 1;
  adder.held = 3;
  adder.counters.outcomes[SPILLWAY_SUM_DID_EMIT] = 1ULL << 33;
  sim::SumJobTotals& job = adder.jobs.emplace_back();
  job.job = 60'000;
  job.limit = 9;
  job.counters.copies = 10;
  outcome.elapsed = base::seconds(9);
  outcome.cpu = base::seconds(17);
  outcome.pace = {
      .mean_late_us = 71.5, .p99_late_us = 300.0, .limit_us = 50.0, .missed = 2, .stolen = 0.25};
  outcome.time.link = "leaf0->spine1#2";
  outcome.time.rate = base::gigabits_per_second(25);
  outcome.time.use = 0.75;
  outcome.time.use_over_time = {0.5, 1.0};
  outcome.time.knows_operations = true;
  outcome.time.idle_by_part[kCallerPart] = base::milliseconds(8);
  outcome.time.longest_gap = base::milliseconds(9);
  outcome.time.wasted_bytes = 1ULL << 41;
  outcome.trace.emplace();
  outcome.trace->packets = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  outcome.trace->left_out = 11;
  outcome.trace->missed = 12;
  outcome.trace->median = base::nanoseconds(13);
  outcome.trace->p99 = base::nanoseconds(14);
  return outcome;
}

TEST(Report, ComesThroughAsItWent) {
  const Report report = parse_report(std::string(kReadyLine) + outcome_lines(sample_outcome()));
  EXPECT_TRUE(report.ready);
  EXPECT_TRUE(report.error.ok());
  EXPECT_EQ(report.outcome.exit_codes, (std::vector<int>{0, 3, 137}));
  EXPECT_EQ(report.outcome.interrupted_by, 2);
  EXPECT_EQ(report.outcome.first_failed, 1U);
  EXPECT_TRUE(report.outcome.over_limit);
  EXPECT_EQ(report.outcome.fabric.frames_in, 11U);
  EXPECT_EQ(report.outcome.fabric.latest_us, 12U);
  EXPECT_EQ(report.outcome.fabric.mean_late_us, 1.5);
  EXPECT_EQ(report.outcome.fabric.tenant_bytes, 1ULL << 42);
  EXPECT_EQ(report.outcome.fabric.wanted_bytes, 1ULL << 43);
  ASSERT_EQ(report.outcome.fabric.ports.size(), 1U);
  const fabric::PortSnapshot& port = report.outcome.fabric.ports[0];
  EXPECT_EQ(port.name, "switch0->host0");
  EXPECT_EQ(port.sent_bytes, 1ULL << 40);
  EXPECT_EQ(port.queued_bytes, 7U);
  EXPECT_EQ(port.counters.packets[SPILLWAY_REASON_TRIMMED], 5U);
  EXPECT_EQ(port.counters.dropped[7], 6U);
  EXPECT_EQ(port.counters.dropped_control, 8U);
  ASSERT_EQ(report.outcome.fabric.adders.size(), 1U);
  const sim::AdderTotals& adder = report.outcome.fabric.adders[0];
  EXPECT_EQ(adder.name, "leaf0");
  EXPECT_EQ(adder.config.slots, 64U);
  EXPECT_EQ(adder.config.policy, SPILLWAY_SUM_PREEMPTIVE);
  EXPECT_EQ(adder.config.level, 1);
  EXPECT_EQ(adder.held, 3U);
  EXPECT_EQ(adder.counters.outcomes[SPILLWAY_SUM_DID_EMIT], 1ULL << 33);
  ASSERT_EQ(adder.jobs.size(), 1U);
  EXPECT_EQ(adder.jobs[0].job, 60'000);
  EXPECT_EQ(adder.jobs[0].limit, 9U);
  EXPECT_EQ(adder.jobs[0].counters.copies, 10U);
  EXPECT_EQ(report.outcome.pace.mean_late_us, 71.5);
  EXPECT_EQ(report.outcome.pace.missed, 2U);
  EXPECT_EQ(report.outcome.pace.stolen, 0.25);
  EXPECT_FALSE(report.outcome.pace.kept_up());
  const TimeReport& time = report.outcome.time;
  EXPECT_EQ(time.link, "leaf0->spine1#2");
  EXPECT_EQ(time.rate, base::gigabits_per_second(25));
  EXPECT_EQ(time.use, 0.75);
  EXPECT_EQ(time.use_over_time, (std::vector<double>{0.5, 1.0}));
  EXPECT_TRUE(time.knows_operations);
  EXPECT_EQ(time.idle_by_part[kCallerPart], base::milliseconds(8));
  EXPECT_EQ(time.longest_gap, base::milliseconds(9));
  EXPECT_EQ(time.wasted_bytes, 1ULL << 41);
  ASSERT_TRUE(report.outcome.trace.has_value());
  const TraceSummary& trace = *report.outcome.trace;
  EXPECT_EQ(trace.packets, sample_outcome().trace->packets);
  EXPECT_EQ(trace.left_out, 11U);
  EXPECT_EQ(trace.missed, 12U);
  EXPECT_EQ(trace.median, base::nanoseconds(13));
  EXPECT_EQ(trace.p99, base::nanoseconds(14));
  EXPECT_EQ(report.outcome.elapsed, base::seconds(9));
  EXPECT_EQ(report.outcome.cpu, base::seconds(17));
}

TEST(Report, ASampleComesThroughAsItWent) {
  FabricSample sent;
  sent.at = base::milliseconds(100);
  sent.sent_bytes = 1ULL << 50;
  sent.queued_bytes = 2;
  sent.deepest_bytes = 3;
  sent.trimmed = 4;
  sent.lost = 5;
  const std::string line = sample_line(sent);
  EXPECT_EQ(line.back(), '\n');
  const std::optional<FabricSample> come = parse_sample(line);
  ASSERT_TRUE(come.has_value());
  EXPECT_EQ(come->at, sent.at);
  EXPECT_EQ(come->sent_bytes, sent.sent_bytes);
  EXPECT_EQ(come->queued_bytes, 2U);
  EXPECT_EQ(come->deepest_bytes, 3U);
  EXPECT_EQ(come->trimmed, 4U);
  EXPECT_EQ(come->lost, 5U);
}

TEST(Report, WhatIsNoSampleIsNone) {
  for (const char* line : {"", "ready", "sample", "sample 1 2 3", "sample x", "exit 1 2 3 4 5 6"}) {
    EXPECT_FALSE(parse_sample(line).has_value()) << line;
  }
}

TEST(Report, AnErrorKeepsItsCodeAndStaysOneLine) {
  const Report report = parse_report(error_line({base::StatusCode::kUnavailable, "no\nip here"}));
  EXPECT_EQ(report.error.code(), base::StatusCode::kUnavailable);
  EXPECT_EQ(report.error.message(), "no ip here");
  EXPECT_FALSE(report.ready);
}

TEST(Report, ALineThatWasCutOffDoesNotCount) {
  EXPECT_FALSE(parse_report("ready").ready);
  EXPECT_EQ(parse_report("exit 1\nexit 2").outcome.exit_codes, std::vector<int>{1});
}

TEST(Report, TheWorstExitCodeIsTheLargestUnlessASignalOrTheLimitEndedIt) {
  LabOutcome outcome = sample_outcome();
  EXPECT_EQ(outcome.worst_exit_code(), 130);
  outcome.interrupted_by = 0;
  EXPECT_EQ(outcome.worst_exit_code(), kOverLimitExit);
  outcome.over_limit = false;
  EXPECT_EQ(outcome.worst_exit_code(), 137);
  outcome.exit_codes.clear();
  EXPECT_EQ(outcome.worst_exit_code(), 0);
}

}  // namespace
}  // namespace spillway::lab
