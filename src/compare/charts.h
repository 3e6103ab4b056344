// SPDX-License-Identifier: Apache-2.0
//
// A comparison as charts, a line per run, of the first round. Long series are thinned to
// kMaxChartPoints a line, of which peaks are kept. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "compare/comparison.h"
#include "plot/svg_chart.h"

namespace spillway::compare {

inline constexpr std::size_t kMaxChartPoints = 240;

// Accuracy against time or, where no run was evaluated, the loss.
plot::Chart accuracy_chart(const Comparison& comparison);
// Which share of the steps took how long at most, without the first.
plot::Chart step_time_chart(const Comparison& comparison);
// What waits at the port where most does.
plot::Chart queue_chart(const Comparison& comparison);
plot::Chart trim_chart(const Comparison& comparison);
plot::Chart loss_chart(const Comparison& comparison);

using Points = std::vector<std::pair<double, double>>;

// A point per run of neighbours: the last one's time and their largest value.
Points peaks_of(const Points& points, std::size_t most);
// Of a count that grows: by how much in a second.
Points rates_of(const Points& points, std::size_t most);

}  // namespace spillway::compare
