// SPDX-License-Identifier: Apache-2.0
//
// What runs are compared by: numbers per run, and their ratio to those of the first. Pure.
//
// Percentiles are the nearest rank. Bytes and packets are those of all switch ports, background
// traffic included, which a longer run has more of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compare/run_record.h"

namespace spillway::compare {

enum class Unit : std::uint8_t { kMilliseconds, kSeconds, kShare, kBytes, kPackets };

enum class Better : std::uint8_t { kLess, kMore, kNeither };

struct Metric {
  std::string key;    // for machines: "step_p50_ms"
  std::string label;  // for people: "step time, median"
  Unit unit = Unit::kSeconds;
  Better better = Better::kLess;
  std::vector<std::optional<double>> values;  // per run; none: unknown
  std::vector<std::optional<double>> ratios;  // to the first run's; none: there is none
};

// The wanted accuracy or, where none was given, the highest that all runs with evaluations reached;
// none: there are no evaluations.
std::optional<double> target_accuracy(const Comparison& comparison);

// Always the same metrics in the same order, also where no run has a value.
std::vector<Metric> metrics_of(const Comparison& comparison);

// `share` of 0.5 is the median; none: there are no values.
std::optional<double> percentile(std::vector<double> values, double share);

// "80.5 ms", "12.3 s", "84.2 %", "1.25 GB", "12,345".
std::string value_text(Unit unit, double value);
// "0.33x".
std::string ratio_text(double ratio);
// "12,345".
std::string count_text(std::uint64_t count);

}  // namespace spillway::compare
