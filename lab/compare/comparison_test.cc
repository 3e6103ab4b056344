// SPDX-License-Identifier: Apache-2.0
#include "lab/compare/comparison.h"

#include <gtest/gtest.h>

#include <numeric>

#include "lab/compare/comparison_testing.h"

namespace spillway::compare {
namespace {

Metric metric_of(const Comparison& comparison, const std::string& key) {
  for (const Metric& metric : metrics_of(comparison)) {
    if (metric.key == key) {
      return metric;
    }
  }
  ADD_FAILURE() << "no metric " << key;
  return {};
}

TEST(Percentile, IsTheNearestRank) {
  std::vector<double> values(100);
  std::iota(values.rbegin(), values.rend(), 1.0);
  EXPECT_EQ(percentile(values, 0.5), 50);
  EXPECT_EQ(percentile(values, 0.99), 99);
  EXPECT_EQ(percentile(values, 1.0), 100);
  EXPECT_EQ(percentile(values, 0.0), 1);
  EXPECT_EQ(percentile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(percentile({7}, 0.99), 7);
  EXPECT_EQ(percentile({}, 0.5), std::nullopt);
}

TEST(Metrics, HaveValuesAndRatiosToTheFirstRun) {
  const Comparison comparison = sample_comparison();
  const Metric median = metric_of(comparison, "step_p50_ms");
  EXPECT_EQ(median.values[0], 52);  // of 4 to 100: the first three are left out
  EXPECT_EQ(median.values[1], 26);
  EXPECT_EQ(median.ratios[0], 1);
  EXPECT_EQ(median.ratios[1], 0.5);
  EXPECT_EQ(metric_of(comparison, "step_p99_ms").values[1], 50);
  EXPECT_EQ(metric_of(comparison, "step_first_ms").values[0], 3);
  EXPECT_EQ(metric_of(comparison, "elapsed_seconds").values[0], 20);
  EXPECT_EQ(metric_of(comparison, "wire_bytes").values[0], 1.25e9);
  EXPECT_EQ(metric_of(comparison, "trimmed_packets").ratios[1], 2);
  EXPECT_EQ(metric_of(comparison, "cpu_seconds").values[1], 8);
  EXPECT_EQ(metric_of(comparison, "final_accuracy").values[1], 0.75);
  EXPECT_EQ(metric_of(comparison, "final_accuracy").better, Better::kMore);
  EXPECT_EQ(metric_of(comparison, "trimmed_packets").better, Better::kNeither);
}

TEST(Metrics, WhereTheFirstHasNothingThereIsNoRatio) {
  const Metric lost = metric_of(sample_comparison(), "lost_packets");
  EXPECT_EQ(lost.values[1], 0);
  EXPECT_EQ(lost.ratios[0], std::nullopt);
  EXPECT_EQ(lost.ratios[1], std::nullopt);
}

TEST(Comparison, TenantsAreShownWhereThereAreAny) {
  Comparison comparison = sample_comparison();
  EXPECT_EQ(metric_of(comparison, "tenant_bytes").values[0], std::nullopt);
  comparison.runs[0].outcome.fabric.wanted_bytes = 1000;
  comparison.runs[0].outcome.fabric.tenant_bytes = 800;
  EXPECT_EQ(metric_of(comparison, "tenant_bytes").values[0], 800);
  EXPECT_EQ(metric_of(comparison, "tenant_share").values[0], 0.8);
  EXPECT_EQ(metric_of(comparison, "tenant_share").values[1], std::nullopt);
}

TEST(Metrics, TheTargetIsWhatAllRunsReachedUnlessOneWasWanted) {
  Comparison comparison = sample_comparison();
  EXPECT_EQ(target_accuracy(comparison), 0.75);
  EXPECT_EQ(metric_of(comparison, "seconds_to_target").values[0], 10);
  EXPECT_EQ(metric_of(comparison, "seconds_to_target").values[1], 5);
  comparison.wanted_accuracy = 0.5;
  EXPECT_EQ(metric_of(comparison, "seconds_to_target").values[1], 2.5);
  EXPECT_EQ(metric_of(comparison, "seconds_to_target").label, "time to 50.0 % accuracy");
  comparison.wanted_accuracy = 0.78;
  EXPECT_EQ(metric_of(comparison, "seconds_to_target").values[1], std::nullopt);
  EXPECT_EQ(metric_of(comparison, "seconds_to_target").ratios[1], std::nullopt);
}

TEST(Comparison, ShortRunsTellNothingAboutAccuracy) {
  Comparison comparison = sample_comparison();
  EXPECT_TRUE(tells_accuracy(comparison));
  comparison.runs[0].log.steps.resize(kLeastStepsForAccuracy - 1);
  EXPECT_FALSE(tells_accuracy(comparison));
  comparison.runs[0].log.evaluations.clear();
  EXPECT_TRUE(tells_accuracy(comparison));
}

TEST(Metrics, RunsWithoutALogStillHaveTimesAndBytes) {
  Comparison comparison = sample_comparison();
  comparison.runs[0].log = {};
  EXPECT_EQ(target_accuracy(comparison), 0.75);  // of the runs with evaluations
  comparison.runs[1].log = {};
  EXPECT_EQ(target_accuracy(comparison), std::nullopt);
  EXPECT_EQ(metric_of(comparison, "step_p50_ms").values[0], std::nullopt);
  EXPECT_EQ(metric_of(comparison, "seconds_to_target").values[0], std::nullopt);
  EXPECT_EQ(metric_of(comparison, "elapsed_seconds").ratios[1], 0.5);
}

TEST(Metrics, WithoutALogStepsAreThoseThatTheLabSaw) {
  Comparison comparison = sample_comparison();
  RunRecord& run = comparison.runs[0];
  EXPECT_EQ(step_source(run), StepSource::kLog);
  run.watched.steps = {{1, 1.0, std::nullopt, std::nullopt}, {2, 2.0, 900.0, std::nullopt}};
  for (std::uint64_t i = 3; i < 8; ++i) {
    run.watched.steps.push_back({i, 2.0, 70.0, std::nullopt});
  }
  EXPECT_EQ(metric_of(comparison, "step_p50_ms").values[0], 52);
  for (LogStep& step : run.log.steps) {
    step.step_ms.reset();
  }
  EXPECT_EQ(step_source(run), StepSource::kOptimizer);
  EXPECT_EQ(metric_of(comparison, "step_p99_ms").values[0], 70);
  EXPECT_EQ(metric_of(comparison, "step_first_ms").values[0], 900);
  run.watched.steps.resize(2);  // no steps remain without the first ones
  EXPECT_EQ(metric_of(comparison, "step_p50_ms").values[0], std::nullopt);
  run.watched.steps.clear();
  EXPECT_EQ(step_source(run), StepSource::kNone);
}

TEST(Metrics, TheBusiestLinksUseIsThatWhileThereIsTraffic) {
  Comparison comparison = sample_comparison();
  EXPECT_EQ(metric_of(comparison, "link_use").values[0], std::nullopt);
  comparison.runs[0].outcome.time.use_over_time = {0, 0.05, 0.5, 0, 1, 0.01, 0};
  EXPECT_EQ(metric_of(comparison, "link_use").values[0], 0.5);
  comparison.runs[0].outcome.time.use_over_time = {0, 0.05};
  EXPECT_EQ(metric_of(comparison, "link_use").values[0], std::nullopt);
}

TEST(Metrics, SeveralRoundsHaveTheirMean) {
  Comparison comparison = sample_comparison();
  comparison.rounds = 2;
  comparison.runs[0].repeats = {sample_run("tcp", 3.0)};
  comparison.runs[1].repeats = {sample_run("spillway", 1.5)};
  comparison.runs[1].repeats[0].log.evaluations.clear();
  const Metric median = metric_of(comparison, "step_p50_ms");
  EXPECT_EQ(median.by_round[0], (std::vector<std::optional<double>>{52, 156}));
  EXPECT_EQ(median.values[0], 104);
  EXPECT_EQ(median.ratios[1], 0.5);
  EXPECT_EQ(metric_of(comparison, "final_accuracy").values[1], 0.75);  // of the only round with an
                                                                       // evaluation
  comparison.runs[0].repeats[0].log.evaluations.back().accuracy = 0.6;
  EXPECT_EQ(target_accuracy(comparison), 0.6);
}

TEST(Metrics, OfARunThatFailedOnlyThoseOfItsStepsCount) {
  Comparison comparison = sample_comparison();
  comparison.runs[1].outcome.over_limit = true;
  comparison.runs[1].log.evaluations.back().accuracy = 0.6;
  EXPECT_EQ(metric_of(comparison, "step_p50_ms").values[1], 26);
  for (const char* key : {"elapsed_seconds", "wire_bytes", "trimmed_packets", "cpu_seconds"}) {
    EXPECT_EQ(metric_of(comparison, key).values[1], std::nullopt) << key;
    EXPECT_NE(metric_of(comparison, key).values[0], std::nullopt) << key;
  }
  EXPECT_EQ(target_accuracy(comparison), 0.8);  // that of the successful run
  comparison.runs[0].outcome.exit_codes = {1, 0};
  EXPECT_EQ(target_accuracy(comparison), 0.6);
}

TEST(Metrics, ARunThatWasLateHasNone) {
  Comparison comparison = sample_comparison();
  comparison.runs[1].late = "the lab was late";
  for (const Metric& metric : metrics_of(comparison)) {
    EXPECT_EQ(metric.values[1], std::nullopt) << metric.key;
  }
}

TEST(Metrics, RoundsThatFailedAreInNoMean) {
  Comparison comparison = sample_comparison();
  comparison.runs[0].repeats = {sample_run("tcp", 3.0)};
  comparison.runs[0].repeats[0].outcome.exit_codes = {0, 9};
  const Metric median = metric_of(comparison, "step_p50_ms");
  EXPECT_EQ(median.by_round[0], (std::vector<std::optional<double>>{52, std::nullopt}));
  EXPECT_EQ(median.values[0], 52);
}

TEST(Failure, IsToldWithItsReason) {
  RunRecord run = sample_run("tcp", 1.0);
  run.output_path = "/out/tcp.txt";
  EXPECT_TRUE(went_well(run));
  EXPECT_EQ(failure_of(run), "");
  EXPECT_EQ(result_text(run), "done");
  run.outcome.exit_codes = {143, 3};
  run.outcome.first_failed = 1;
  EXPECT_EQ(failure_of(run),
            "rank 1 failed first, with exit code 3; what it printed is in /out/tcp.txt");
  EXPECT_EQ(result_text(run), "failed: exit code 143");
  run.outcome.over_limit = true;
  EXPECT_EQ(failure_of(run),
            "ended after 20 s, at its limit (--limit); what it printed is in /out/tcp.txt");
  EXPECT_EQ(result_text(run), "failed: limit");
  run.outcome.interrupted_by = 15;
  EXPECT_EQ(failure_of(run), "stopped by signal 15 after 20 s");
  EXPECT_EQ(result_text(run), "stopped");
  run.late = "late by 300 us";
  EXPECT_EQ(failure_of(run), "late by 300 us");
  EXPECT_EQ(result_text(run), "failed: late");
  run.not_made = "no such program";
  EXPECT_EQ(failure_of(run), "no such program");
  EXPECT_EQ(result_text(run), "failed: not started");
}

TEST(Metrics, ValuesAreWrittenWithTheirUnits) {
  EXPECT_EQ(value_text(Unit::kMilliseconds, 80.456), "80.5 ms");
  EXPECT_EQ(value_text(Unit::kSeconds, 12.345), "12.35 s");
  EXPECT_EQ(value_text(Unit::kShare, 0.8421), "84.2 %");
  EXPECT_EQ(value_text(Unit::kBytes, 999), "999 B");
  EXPECT_EQ(value_text(Unit::kBytes, 1.25e9), "1.25 GB");
  EXPECT_EQ(value_text(Unit::kBytes, 5e16), "50000.00 TB");
  EXPECT_EQ(value_text(Unit::kPackets, 1234567), "1,234,567");
  EXPECT_EQ(count_text(0), "0");
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(1000), "1,000");
  EXPECT_EQ(ratio_text(0.3333), "0.33x");
}

}  // namespace
}  // namespace spillway::compare
