// SPDX-License-Identifier: Apache-2.0
#include "compare/page.h"

#include <gtest/gtest.h>

#include "compare/comparison_json.h"
#include "compare/comparison_testing.h"
#include "compare/notes.h"
#include "plot/text_testing.h"

namespace spillway::compare {
namespace {

using plot::count;

TEST(Page, HasATableAndAllCharts) {
  const std::string page = comparison_page(sample_comparison(), {{"hosts", "4"}});
  EXPECT_EQ(count(page, "<table>"), 1U);
  EXPECT_EQ(count(page, "<svg "), 5U);
  EXPECT_EQ(count(page, "<polyline "), 10U);
  EXPECT_NE(page.find("25.0 ms<span class='ratio'>0.50x</span>"), std::string::npos);
  EXPECT_NE(page.find("<td class='best'>25.0 ms"), std::string::npos);
  EXPECT_NE(page.find("<td>1,000<span"), std::string::npos);  // a trim is neither good nor bad
  EXPECT_NE(page.find("<dt>hosts</dt><dd>4</dd>"), std::string::npos);
  EXPECT_EQ(count(page, "To know before reading"), 1U);  // isolation none
}

TEST(Page, LoadsNothingFromElsewhere) {
  std::string page = comparison_page(sample_comparison(), {});
  const std::string name = "http://www.w3.org/2000/svg";  // of a language, not of a place
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
  EXPECT_EQ(count(page, "&ndash;"), 4U);  // two step times, time to target, accuracy
  EXPECT_NE(page.find("spillway: wrote no log"), std::string::npos);
}

TEST(Notes, RunsWithoutALogShareOne) {
  Comparison comparison = sample_comparison();
  for (RunRecord& run : comparison.runs) {
    run.outcome.isolation = lab::Isolation::kRoot;
    run.log = {};
  }
  const std::vector<std::string> notes = notes_of(comparison);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_TRUE(notes[0].starts_with("tcp, spillway: wrote no log")) << notes[0];
  EXPECT_NE(notes[0].find("{log}"), std::string::npos);
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
  comparison.runs[1].outcome.fabric.missed_in = 7;
  const std::vector<std::string> notes = notes_of(comparison);
  ASSERT_EQ(notes.size(), 4U);
  EXPECT_NE(notes[0].find("tcp: rank 1 ended with exit code 3"), std::string::npos);
  EXPECT_NE(notes[1].find("left out: 2,000"), std::string::npos);
  EXPECT_NE(notes[2].find("5 steps"), std::string::npos);
  EXPECT_NE(notes[3].find("lost 7 frames"), std::string::npos);
}

TEST(ComparisonJson, HasNumbersRatiosAndSeries) {
  Comparison comparison = sample_comparison();
  const nlohmann::json json = comparison_json(comparison, {{"hosts", "4"}});
  EXPECT_EQ(json["network"]["hosts"], "4");
  EXPECT_EQ(json["target_accuracy"], 0.75);
  ASSERT_EQ(json["runs"].size(), 2U);
  const nlohmann::json& run = json["runs"][1];
  EXPECT_EQ(run["transport"], "spillway");
  EXPECT_EQ(run["metrics"]["step_p50_ms"], 25);
  EXPECT_EQ(run["ratios"]["step_p50_ms"], 0.5);
  EXPECT_TRUE(run["ratios"]["lost_packets"].is_null());
  EXPECT_EQ(run["steps"], 100);
  EXPECT_EQ(run["evaluations"].size(), 2U);
  EXPECT_EQ(run["samples"].back()["trimmed"], 1000);
}

}  // namespace
}  // namespace spillway::compare
