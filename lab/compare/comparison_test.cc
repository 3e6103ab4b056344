// SPDX-License-Identifier: Apache-2.0
#include "lab/compare/comparison.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "lab/compare/comparison_testing.h"
#include "lab/compare/transport.h"

namespace spillway::compare {

// ------------------------------------------------------------------ transports

namespace {

using Words = std::vector<std::string>;

TEST(Transport, NamesAreReadInTheirOrder) {
  const auto transports = parse_transports("spillway,tcp,spillway-exact");
  ASSERT_TRUE(transports.ok());
  ASSERT_EQ(transports->size(), 3U);
  EXPECT_EQ((*transports)[0].name, "spillway");
  EXPECT_EQ((*transports)[1].name, "tcp");
  EXPECT_EQ((*transports)[2].name, "spillway-exact");
}

bool sets(const Transport& transport, const char* variable) {
  const Words& all = transport.variables;
  return std::find(all.begin(), all.end(), variable) != all.end();
}

TEST(Transport, TcpIsCubicUnlessItsNameSaysOtherwise) {
  const auto all = parse_transports("tcp,tcp-bbr,tcp-fp16,tcp-powersgd,spillway-over-tcp");
  ASSERT_TRUE(all.ok());
  EXPECT_EQ((*all)[0].title, "tcp (cubic)");
  EXPECT_EQ((*all)[1].title, "tcp-bbr");
  for (const Transport& transport : *all) {
    EXPECT_EQ(transport.tcp, transport.name == "tcp-bbr" ? "bbr" : "cubic");
    EXPECT_NE(transport.title.find(transport.tcp), std::string::npos) << transport.title;
  }
}

TEST(Transport, VariablesSayBackendHookModeBitsAndCarrier) {
  const auto all = parse_transports(
      "tcp,tcp-fp16,tcp-powersgd,spillway-exact,spillway-16,spillway,spillway-over-tcp,"
      "spillway-flat");
  ASSERT_TRUE(all.ok());
  EXPECT_TRUE(sets((*all)[0], "SPILLWAY_LAB_BACKEND=gloo"));
  EXPECT_TRUE(sets((*all)[0], "SPILLWAY_LAB_HOOK="));
  EXPECT_TRUE(sets((*all)[1], "SPILLWAY_LAB_HOOK=fp16"));
  EXPECT_TRUE(sets((*all)[2], "SPILLWAY_LAB_HOOK=powersgd"));
  EXPECT_TRUE(sets((*all)[3], "SPILLWAY_CODEC=exact"));
  EXPECT_TRUE(sets((*all)[4], "SPILLWAY_CODEC=planes"));
  EXPECT_TRUE(sets((*all)[4], "SPILLWAY_BITS=16"));
  EXPECT_EQ((*all)[5].defaults, (Words{"SPILLWAY_CODEC=planes"}));
  EXPECT_TRUE(sets((*all)[5], "SPILLWAY_CARRIER=auto"));
  EXPECT_EQ((*all)[6].defaults, (Words{"SPILLWAY_CODEC=planes"}));
  EXPECT_TRUE(sets((*all)[6], "SPILLWAY_CARRIER=tcp"));
  EXPECT_TRUE(sets((*all)[6], "SPILLWAY_LAB_BACKEND=spillway"));
  EXPECT_TRUE(sets((*all)[5], "SPILLWAY_LAB_HOOK="));
  EXPECT_EQ((*all)[5].flat, "spillway-flat");
  EXPECT_EQ((*all)[7].defaults, (*all)[5].defaults);
  EXPECT_TRUE(sets((*all)[7], "SPILLWAY_CARRIER=auto"));
  EXPECT_TRUE(sets((*all)[7], "SPILLWAY_LAB_HOOK=flat"));
}

TEST(Transport, WhatIsNoListIsRefusedWithTheNamesThatAre) {
  for (const char* names : {"", "udp", "tcp,", ",tcp", "tcp;spillway"}) {
    const auto transports = parse_transports(names);
    ASSERT_FALSE(transports.ok()) << names;
    EXPECT_NE(transports.status().message().find("spillway-exact"), std::string::npos) << names;
  }
  EXPECT_FALSE(parse_transports("tcp,tcp").ok());
}

TEST(Transport, PlaceholdersAreReplacedWhereverTheyStand) {
  const Transport transport = parse_transports("spillway-exact")->front();
  EXPECT_EQ(command_for({"a", "--b={backend}", "{log}{log}", "x{transport}y"}, transport, "/l"),
            (Words{"a", "--b=spillway", "/l/l", "xspillway-exacty"}));
}

TEST(Transport, AllElseIsLeftAlone) {
  const Transport transport = parse_transports("tcp")->front();
  const Words command = {"{", "{}", "{backen", "backend}", "{{rank}", ""};
  EXPECT_EQ(command_for(command, transport, "/l"), command);
  EXPECT_EQ(command_for({"{log}"}, transport, "{backend}"), Words{"{backend}"});
}

TEST(Transport, ACommandThatNamesNoneIsTheSameForAll) {
  EXPECT_TRUE(depends_on_transport({"train", "--backend={backend}"}));
  EXPECT_TRUE(depends_on_transport({"{transport}.sh"}));
  EXPECT_FALSE(depends_on_transport({"train", "{log}"}));
}

}  // namespace

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
  EXPECT_TRUE(accuracy_is_comparable(comparison));
  comparison.runs[0].log.steps.resize(kLeastStepsForAccuracy - 1);
  EXPECT_FALSE(accuracy_is_comparable(comparison));
  comparison.runs[0].log.evaluations.clear();
  EXPECT_TRUE(accuracy_is_comparable(comparison));
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
  comparison.runs[0].later_rounds = {sample_run("tcp", 3.0)};
  comparison.runs[1].later_rounds = {sample_run("spillway", 1.5)};
  comparison.runs[1].later_rounds[0].log.evaluations.clear();
  const Metric median = metric_of(comparison, "step_p50_ms");
  EXPECT_EQ(median.by_round[0], (std::vector<std::optional<double>>{52, 156}));
  EXPECT_EQ(median.values[0], 104);
  EXPECT_EQ(median.ratios[1], 0.5);
  EXPECT_EQ(metric_of(comparison, "final_accuracy").values[1], 0.75);  // of the only round with an
                                                                       // evaluation
  comparison.runs[0].later_rounds[0].log.evaluations.back().accuracy = 0.6;
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
  comparison.runs[0].later_rounds = {sample_run("tcp", 3.0)};
  comparison.runs[0].later_rounds[0].outcome.exit_codes = {0, 9};
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

namespace {

// Runs in which every step takes the given time.
Comparison with_steps(const std::vector<std::pair<const char*, double>>& transports) {
  Comparison comparison;
  for (const auto& [name, step_ms] : transports) {
    RunRecord& run = comparison.runs.emplace_back(sample_run(name, 1.0));
    for (LogStep& step : run.log.steps) {
      step.step_ms = step_ms;
    }
  }
  return comparison;
}

TEST(Split, AGainIsBitsTimesTransport) {
  const auto split = split_of(with_steps({{"tcp", 600},
                                          {"tcp-bbr", 750},
                                          {"tcp-fp16", 400},
                                          {"spillway-exact", 480},
                                          {"spillway-16", 200},
                                          {"spillway-over-tcp", 240},
                                          {"spillway", 120}}));
  ASSERT_TRUE(split.has_value());
  ASSERT_EQ(split->shares.size(), 6U);
  EXPECT_EQ(split->metric.key, "step_p50_ms");
  EXPECT_EQ(split->baseline, "tcp");
  for (const GainShare& share : split->shares) {
    if (share.name == "spillway-exact") {  // it sends code that no TCP sends
      EXPECT_TRUE(share.gain && !share.bits && !share.transport);
      continue;
    }
    ASSERT_TRUE(share.gain && share.bits && share.transport) << share.name;
    EXPECT_NEAR(*share.gain, *share.bits * *share.transport, 1e-9) << share.name;
  }
  const auto expect = [&split](std::size_t at, const char* name, double bits, double transport) {
    EXPECT_EQ(split->shares[at].name, name);
    EXPECT_NEAR(*split->shares[at].bits, bits, 1e-9) << name;
    EXPECT_NEAR(*split->shares[at].transport, transport, 1e-9) << name;
  };
  expect(0, "tcp-bbr", 1, 0.8);
  expect(1, "tcp-fp16", 1.5, 1);
  expect(3, "spillway-16", 1.5, 2);
  expect(4, "spillway-over-tcp", 2.5, 1);
  expect(5, "spillway", 2.5, 2);
}

TEST(Split, TheBaselineIsTheFasterTcp) {
  Comparison comparison = with_steps({{"tcp", 600},
                                      {"tcp-bbr", 400},
                                      {"tcp-fp16", 300},
                                      {"spillway-exact", 200},
                                      {"spillway-16", 100}});
  const auto split = split_of(comparison);
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->baseline, "tcp-bbr");
  ASSERT_EQ(split->shares.size(), 4U);
  const auto expect = [&split](std::size_t at, const char* control, double bits, double transport) {
    const GainShare& share = split->shares[at];
    EXPECT_EQ(share.control, control) << share.name;
    EXPECT_NEAR(*share.bits, bits, 1e-9) << share.name;
    EXPECT_NEAR(*share.transport, transport, 1e-9) << share.name;
    EXPECT_NEAR(*share.gain, *share.bits * *share.transport, 1e-9) << share.name;
  };
  expect(0, "tcp-bbr", 1, 2.0 / 3);  // tcp itself is slower
  expect(1, "tcp-fp16", 4.0 / 3, 1);
  EXPECT_EQ(split->shares[2].gain, 2);  // not split: it sends code that no TCP sends
  EXPECT_EQ(split->shares[2].bits, std::nullopt);
  expect(3, "tcp-fp16", 4.0 / 3, 3);
  EXPECT_TRUE(split_explanation(*split).starts_with("Gains are over tcp-bbr, "));
  comparison.runs[1].outcome.exit_codes = {0, 1};  // a run that failed is no baseline
  EXPECT_EQ(split_of(comparison)->baseline, "tcp");
}

TEST(Split, WithAFlatTwinSchedulingIsTakenOutOfTheTransport) {
  const auto split = split_of(with_steps(
      {{"tcp", 600}, {"spillway-over-tcp", 300}, {"spillway-flat", 150}, {"spillway", 120}}));
  ASSERT_TRUE(split.has_value());
  const GainShare& flat = split->shares[1];
  EXPECT_EQ(flat.transport, 2);
  EXPECT_EQ(flat.scheduling, std::nullopt);
  const GainShare& ours = split->shares[2];
  EXPECT_EQ(ours.gain, 5);
  EXPECT_EQ(ours.bits, 2);
  EXPECT_EQ(ours.transport, 2);
  EXPECT_EQ(ours.scheduling, 1.25);
}

TEST(Split, WithoutTheControlTheGainStandsAlone) {
  const auto split = split_of(with_steps({{"spillway", 100}, {"tcp", 300}}));
  ASSERT_TRUE(split.has_value());
  ASSERT_EQ(split->shares.size(), 1U);
  EXPECT_EQ(split->shares[0].gain, 3);
  EXPECT_EQ(split->shares[0].control, "spillway-over-tcp");
  EXPECT_EQ(split->shares[0].bits, std::nullopt);
  EXPECT_EQ(split->shares[0].transport, std::nullopt);
}

TEST(Split, WithoutTcpOrWithNothingElseThereIsNone) {
  EXPECT_FALSE(split_of(with_steps({{"spillway-over-tcp", 100}, {"spillway", 300}})).has_value());
  EXPECT_FALSE(split_of(with_steps({{"tcp", 100}})).has_value());
}

TEST(Split, ARunThatFailedHasNoGainAndIsNoControl) {
  Comparison comparison = with_steps({{"tcp", 300}, {"spillway-over-tcp", 200}, {"spillway", 100}});
  comparison.runs[1].outcome.exit_codes = {0, 1};
  comparison.runs[1].log = {};
  const auto split = split_of(comparison);
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->metric.key, "step_p50_ms");  // the other runs have them
  EXPECT_EQ(split->shares[0].gain, std::nullopt);
  EXPECT_EQ(split->shares[1].gain, 3);
  EXPECT_EQ(split->shares[1].bits, std::nullopt);
  comparison.runs[2].later_rounds = {sample_run("spillway", 1.0)};
  comparison.runs[2].later_rounds[0].outcome.exit_codes = {1, 0};
  EXPECT_EQ(split_of(comparison)->shares[1].gain, std::nullopt);
}

TEST(Split, WhereARunHasNoStepsTheWholeTimesAreCompared) {
  Comparison comparison = with_steps({{"tcp", 300}, {"spillway-exact", 100}});
  comparison.runs[1].log = {};
  const auto split = split_of(comparison);
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->metric.key, "elapsed_seconds");
  EXPECT_EQ(split->shares[0].gain, 1);
  EXPECT_NE(split_explanation(*split).find("time in all"), std::string::npos);
}

}  // namespace

}  // namespace spillway::compare
