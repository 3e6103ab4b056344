// SPDX-License-Identifier: Apache-2.0
//
// A comparison as charts: bars of all runs, and plots with one line per run, from the first round.
// Long series are thinned to kMaxChartPoints per line, keeping the peaks. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "lab/compare/comparison.h"
#include "tools/plot/svg_chart.h"

namespace spillway::compare {

inline constexpr std::size_t kMaxChartPoints = 240;

// The median step of every run as a bar, with a tick at the 99th percentile. Beside it the gain
// over TCP and its factors (split.h).
plot::BarChart overview_chart(const Comparison& comparison);
// Accuracy against time; if no run was evaluated, loss against time.
plot::Chart accuracy_chart(const Comparison& comparison);
// Cumulative distribution of step times, without the first steps.
plot::Chart step_time_chart(const Comparison& comparison);
// Length of the longest switch queue over time.
plot::Chart queue_chart(const Comparison& comparison);
plot::Chart trim_chart(const Comparison& comparison);
plot::Chart loss_chart(const Comparison& comparison);

using Points = std::vector<std::pair<double, double>>;

// Merges neighbours into one point: the last one's time and their largest value.
Points peaks_of(const Points& points, std::size_t most);
// Growth of a counter per second.
Points rates_of(const Points& points, std::size_t most);

}  // namespace spillway::compare
