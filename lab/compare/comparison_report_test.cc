// SPDX-License-Identifier: Apache-2.0
#include "lab/compare/comparison_report.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lab/compare/comparison_testing.h"
#include "tools/plot/text_testing.h"

namespace spillway::compare {
namespace {

using plot::count;

TEST(Page, HasATableAndAllCharts) {
  const std::string page = comparison_page(sample_comparison(), {{"hosts", "4"}});
  EXPECT_EQ(count(page, "<table>"), 2U);
  EXPECT_EQ(count(page, "<svg "), 6U);
  EXPECT_EQ(count(page, "<rect "), 2U);
  EXPECT_LT(page.find("id='overview'"), page.find("<table>"));
  EXPECT_EQ(count(page, "<polyline "), 10U);
  EXPECT_NE(page.find("26.0 ms<span class='ratio'>0.50x</span>"), std::string::npos);
  EXPECT_NE(page.find("<td class='best'>26.0 ms"), std::string::npos);
  EXPECT_NE(page.find("One command over tcp (cubic), spillway"), std::string::npos);
  EXPECT_NE(page.find("<td>1,000<span"), std::string::npos);  // a trim is neither good nor bad
  EXPECT_NE(page.find("<dt>hosts</dt><dd>4</dd>"), std::string::npos);
  EXPECT_EQ(count(page, "To know before reading"), 1U);  // isolation none
}

TEST(Page, LoadsNothingFromElsewhere) {
  std::string page = comparison_page(sample_comparison(), {});
  const std::string name = "http://www.w3.org/2000/svg";  // an XML namespace, never loaded
  for (std::size_t at = page.find(name); at != std::string::npos; at = page.find(name)) {
    page.erase(at, name.size());
  }
  for (const char* part : {"http:", "https:", "<script", "src=", "@import", "url("}) {
    EXPECT_EQ(count(page, part), 0U) << part;
  }
}

TEST(Page, WhatTheCommandSaysIsText) {
  Comparison comparison = sample_comparison();
  comparison.command = {"</pre><script>alert(1)</script>", "'\"&"};
  const std::string page = comparison_page(comparison, {{"<b>", "<i>"}});
  EXPECT_EQ(count(page, "<script>") + count(page, "<b>") + count(page, "<i>"), 0U);
  EXPECT_NE(page.find("&lt;/pre&gt;&lt;script&gt;"), std::string::npos);
  EXPECT_NE(page.find("&#39;&quot;&amp;"), std::string::npos);
}

TEST(Page, ARunWithoutALogLeavesGaps) {
  Comparison comparison = sample_comparison();
  comparison.runs[1].log = {};
  const std::string page = comparison_page(comparison, {});
  // Missing are three step times, time to target and accuracy; link use and tenants of both runs;
  // and the parts of the gain, because the control was not run.
  EXPECT_EQ(count(page, "&ndash;"), 5U + 2U + 4U + 3U);
  EXPECT_NE(page.find("spillway: the lab saw no steps"), std::string::npos);
}

TEST(Page, SplitsTheGainIntoBitsAndTransport) {
  Comparison comparison = sample_comparison();
  comparison.runs.push_back(sample_run("spillway-over-tcp", 0.8));
  const std::string page = comparison_page(comparison, {});
  EXPECT_EQ(count(page, "Where the gain comes from"), 1U);
  EXPECT_NE(page.find("<th scope='row'>spillway</th><td>2.00x</td><td>1.25x</td><td>1.60x</td>"
                      "<td class='none'>&ndash;</td><td>spillway-over-tcp</td>"),
            std::string::npos);
  comparison.runs.erase(comparison.runs.begin());  // tcp
  EXPECT_EQ(count(comparison_page(comparison, {}), "Where the gain comes from"), 0U);
}

TEST(Notes, RunsWithoutStepsShareOne) {
  Comparison comparison = sample_comparison();
  for (RunRecord& run : comparison.runs) {
    run.outcome.isolation = lab::Isolation::kRoot;
    run.log = {};
  }
  const std::vector<std::string> notes = notes_of(comparison);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_TRUE(notes[0].starts_with("tcp, spillway: the lab saw no steps")) << notes[0];
  EXPECT_NE(notes[0].find("{log}"), std::string::npos);
}

TEST(Notes, SayWhichRunsAreNotWhatTheyAreCalled) {
  Comparison comparison = sample_comparison();
  comparison.runs = {sample_run("tcp-fp16", 1.0), sample_run("tcp-powersgd", 1.0)};
  for (RunRecord& run : comparison.runs) {
    run.outcome.isolation = lab::Isolation::kRoot;
    run.watched.hook = HookUse::kUsed;
  }
  EXPECT_TRUE(notes_of(comparison).empty());
  comparison.runs[0].watched.hook = HookUse::kNoModel;
  comparison.runs[1].watched.hook = HookUse::kScriptHasOwn;
  comparison.command = {"train"};
  const std::vector<std::string> notes = notes_of(comparison);
  ASSERT_EQ(notes.size(), 3U);
  EXPECT_TRUE(notes[0].starts_with("tcp-fp16: the lab saw no Dist")) << notes[0];
  EXPECT_TRUE(notes[1].starts_with("tcp-powersgd: the script's model has a hook")) << notes[1];
  EXPECT_NE(notes[2].find("tell its runs apart"), std::string::npos);
  comparison.runs[0].watched.has_group = true;  // so the lab chose its backend
  EXPECT_EQ(notes_of(comparison).size(), 2U);
  comparison.runs[0].is_watched = false;
  EXPECT_NE(notes_of(comparison).back().find("python3-spillway"), std::string::npos);
}

TEST(Notes, TheNetworkSaysWhichTcp) {
  const auto facts = network_facts({}, parse_transports("tcp,tcp-bbr,spillway").value());
  const auto tcp =
      std::find_if(facts.begin(), facts.end(), [](const Fact& fact) { return fact.name == "TCP"; });
  ASSERT_NE(tcp, facts.end());
  EXPECT_EQ(tcp->value, "cubic, bbr for tcp-bbr");
}

TEST(Notes, TheNetworkSaysThatTimeIsSlowed) {
  const auto time_of = [](const lab::LabOptions& options) {
    const auto facts = network_facts(options, parse_transports("tcp").value());
    return facts.back().name == "time" ? facts.back().value : "";
  };
  lab::LabOptions options;
  EXPECT_EQ(time_of(options), "");
  options.slowdown = {400, 1};
  EXPECT_NE(time_of(options).find("400 times slower"), std::string::npos) << time_of(options);
  options.slowdown = {400, 2};
  EXPECT_NE(time_of(options).find("800 times slower"), std::string::npos) << time_of(options);
  EXPECT_NE(time_of(options).find("400 by the preset, times 2"), std::string::npos);
  Comparison comparison = sample_comparison();
  comparison.runs[0].slowdown = options.slowdown;
  const nlohmann::json json = comparison_json(comparison, {});
  EXPECT_EQ(json["slowdown"], (nlohmann::json{{"preset", 400}, {"machine", 2}}));
}

TEST(Notes, SayWhatWentWrong) {
  Comparison comparison = sample_comparison();
  for (RunRecord& run : comparison.runs) {
    run.outcome.isolation = lab::Isolation::kRoot;
  }
  EXPECT_TRUE(notes_of(comparison).empty());
  comparison.runs[0].outcome.exit_codes = {0, 3};
  comparison.runs[1].log.bad_lines = 2000;
  comparison.runs[1].log.left_out = 5;
  comparison.runs[1].outcome.pace.missed = 7;
  const std::vector<std::string> notes = notes_of(comparison);
  ASSERT_EQ(notes.size(), 4U);
  EXPECT_NE(notes[0].find("tcp: rank 1 failed first, with exit code 3"), std::string::npos);
  EXPECT_NE(notes[1].find("left out: 2,000"), std::string::npos);
  EXPECT_NE(notes[2].find("5 steps"), std::string::npos);
  EXPECT_NE(notes[3].find("itself lost 7"), std::string::npos);
}

TEST(Page, ARunThatWasNotMadeKeepsItsColumn) {
  Comparison comparison = sample_comparison();
  for (RunRecord& run : comparison.runs) {
    run.outcome.isolation = lab::Isolation::kRoot;
  }
  EXPECT_EQ(count(comparison_page(comparison, {}), "<th scope='row'>result</th>"), 0U);
  RunRecord& failed = comparison.runs[0];
  failed = RunRecord();
  failed.transport = parse_transports("tcp")->front();
  failed.not_made = "cannot <run> it";
  const std::string page = comparison_page(comparison, {});
  EXPECT_NE(page.find("<th scope='row'>result</th><td>failed: not started</td><td>done</td>"),
            std::string::npos);
  EXPECT_NE(page.find("<li>tcp: cannot &lt;run&gt; it</li>"), std::string::npos);
  EXPECT_NE(page.find("isolation root"), std::string::npos);  // of the run that was made
  EXPECT_EQ(comparison_json(comparison, {})["runs"][0]["failure"], "cannot <run> it");
  EXPECT_TRUE(comparison_json(comparison, {})["runs"][1]["failure"].is_null());
}

TEST(Notes, SayWhatAnInterruptLeftOut) {
  Comparison comparison = sample_comparison();
  for (RunRecord& run : comparison.runs) {
    run.outcome.isolation = lab::Isolation::kRoot;
  }
  comparison.rounds = 2;
  comparison.runs[0].later_rounds = {sample_run("tcp", 1.0)};
  comparison.left_out = {"tcp-bbr", "spillway-16"};
  EXPECT_EQ(notes_of(comparison), (std::vector<std::string>{"spillway: 1 of 2 rounds were made",
                                                            "not run: tcp-bbr, spillway-16"}));
}

TEST(ComparisonJson, HasNumbersRatiosAndSeries) {
  Comparison comparison = sample_comparison();
  const nlohmann::json json = comparison_json(comparison, {{"hosts", "4"}});
  EXPECT_EQ(json["network"]["hosts"], "4");
  EXPECT_EQ(json["target_accuracy"], 0.75);
  ASSERT_EQ(json["runs"].size(), 2U);
  const nlohmann::json& run = json["runs"][1];
  EXPECT_EQ(run["transport"], "spillway");
  EXPECT_EQ(run["metrics"]["step_p50_ms"], 26);
  EXPECT_EQ(run["metrics"]["step_first_ms"], 1.5);
  EXPECT_EQ(run["by_round"]["step_p50_ms"], nlohmann::json::array({26.0}));
  EXPECT_EQ(run["tcp"], "cubic");
  EXPECT_EQ(run["steps_from"], "log");
  EXPECT_EQ(json["split"]["baseline"], "tcp");
  EXPECT_EQ(json["split"]["shares"][0]["gain"], 2);
  EXPECT_TRUE(json["split"]["shares"][0]["bits"].is_null());
  EXPECT_EQ(run["ratios"]["step_p50_ms"], 0.5);
  EXPECT_TRUE(run["ratios"]["lost_packets"].is_null());
  EXPECT_EQ(run["steps"], 100);
  EXPECT_EQ(run["evaluations"].size(), 2U);
  EXPECT_EQ(run["samples"].back()["trimmed"], 1000);
}

// ------------------------------------------------------------------ charts

TEST(Charts, PeaksSurviveThinning) {
  Points points;
  for (int i = 0; i < 1000; ++i) {
    points.emplace_back(i, i == 501 ? 99 : 1);
  }
  const Points peaks = peaks_of(points, 100);
  ASSERT_EQ(peaks.size(), 100U);
  EXPECT_EQ(peaks[50], (std::pair<double, double>{509, 99}));
  EXPECT_EQ(peaks.back().first, 999);
  EXPECT_EQ(peaks_of({{1, 2}, {3, 1}}, 100), (Points{{1, 2}, {3, 1}}));
  EXPECT_TRUE(peaks_of({}, 100).empty());
}

TEST(Charts, RatesArePerSecond) {
  EXPECT_EQ(rates_of({{0, 0}, {0.5, 10}, {1.5, 10}, {2, 40}}, 10),
            (Points{{0.5, 20}, {1.5, 0}, {2, 60}}));
  EXPECT_TRUE(rates_of({{1, 5}}, 10).empty());
  EXPECT_TRUE(rates_of({}, 10).empty());
}

TEST(Charts, TwoSamplesAtOnceHaveNoRate) {
  EXPECT_EQ(rates_of({{0, 0}, {1, 10}, {1.001, 1000}}, 10), (Points{{1, 10}}));
}

TEST(Charts, ALongSeriesIsThinnedEvenly) {
  Points points;
  for (int i = 0; i <= 1000; ++i) {
    points.emplace_back(i, 3 * i);
  }
  const Points rates = rates_of(points, 100);
  EXPECT_LE(rates.size(), 100U);
  EXPECT_GE(rates.size(), 80U);
  for (const auto& [at, rate] : rates) {
    EXPECT_DOUBLE_EQ(rate, 3) << at;
  }
}

TEST(Charts, EveryRunHasALineInEveryChart) {
  const Comparison comparison = sample_comparison();
  for (const plot::Chart& chart :
       {accuracy_chart(comparison), step_time_chart(comparison), queue_chart(comparison),
        trim_chart(comparison), loss_chart(comparison)}) {
    ASSERT_EQ(chart.lines.size(), 2U) << chart.title;
    EXPECT_EQ(chart.lines[0].label, "tcp");
    EXPECT_EQ(chart.lines[1].label, "spillway");
    EXPECT_FALSE(chart.lines[0].points.empty()) << chart.title;
    EXPECT_FALSE(chart.lines[1].points.empty()) << chart.title;
  }
}

TEST(Charts, TheOverviewHasABarPerRunAndTheGain) {
  Comparison comparison = sample_comparison();
  comparison.runs.push_back(sample_run("spillway-over-tcp", 0.8));
  comparison.runs.push_back(sample_run("tcp-fp16", 1.0));
  comparison.runs[3].log = {};
  comparison.runs[3].outcome.exit_codes = {0, 1};
  const plot::BarChart chart = overview_chart(comparison);
  ASSERT_EQ(chart.bars.size(), 4U);
  EXPECT_NE(chart.title.find("gain over tcp = "), std::string::npos);
  EXPECT_EQ(chart.bars[0].label, "tcp (cubic)");
  EXPECT_EQ(chart.bars[0].note, "52.0 ms");
  EXPECT_EQ(chart.bars[1].value, 26);
  EXPECT_EQ(chart.bars[1].tick, 50);
  EXPECT_EQ(chart.bars[1].note, "26.0 ms: 2.00x = 1.25 x 1.60");
  EXPECT_EQ(chart.bars[3].value, std::nullopt);
  EXPECT_EQ(chart.bars[3].note, "no step times");
}

TEST(Charts, StepTimesEndAtAllSteps) {
  const Points points = step_time_chart(sample_comparison()).lines[1].points;
  EXPECT_EQ(points.front(), (std::pair<double, double>{2, 100.0 / 97}));
  EXPECT_EQ(points.back(), (std::pair<double, double>{50, 100}));
}

TEST(Charts, TheQueueIsInKibibytes) {
  EXPECT_EQ(queue_chart(sample_comparison()).lines[0].points.back(),
            (std::pair<double, double>{10, 50}));
}

TEST(Charts, WithoutEvaluationsTheLossIsShown) {
  Comparison comparison = sample_comparison();
  EXPECT_EQ(accuracy_chart(comparison).title, "Accuracy against time");
  EXPECT_EQ(accuracy_chart(comparison).guides.front().y, 75);
  for (RunRecord& run : comparison.runs) {
    run.log.evaluations.clear();
  }
  EXPECT_EQ(accuracy_chart(comparison).title, "Loss against time");
  EXPECT_EQ(accuracy_chart(comparison).lines[0].points.size(), 100U);
}

}  // namespace

}  // namespace spillway::compare
