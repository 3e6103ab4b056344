// SPDX-License-Identifier: Apache-2.0
#include "lab/compare/charts.h"

#include <gtest/gtest.h>

#include "lab/compare/comparison_testing.h"

namespace spillway::compare {
namespace {

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
