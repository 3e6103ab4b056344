// SPDX-License-Identifier: Apache-2.0
//
// Runs of one command on one network, and what they are compared by: numbers per run, and their
// ratio to those of the first. Plain values; pure.
//
// Percentiles are the nearest rank. Bytes and packets are those of all switch ports, background
// traffic included, which a longer run has more of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compare/progress_log.h"
#include "compare/transport.h"
#include "lab/lab_options.h"
#include "lab/network/fabric_sampler.h"

namespace spillway::compare {

// One command over one transport, from beginning to end.
struct RunRecord {
  Transport transport;
  lab::LabOutcome outcome;
  std::vector<lab::FabricSample> samples;  // in the order of their times
  ProgressLog log;
  std::string log_path;
  std::string output_path;  // what the ranks printed
};

// Runs of one command on one network.
struct Comparison {
  std::vector<std::string> command;       // with its placeholders
  std::vector<RunRecord> runs;            // the first is what the others are compared with
  std::optional<double> wanted_accuracy;  // 0 to 1; none: see target_accuracy()
};

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

double seconds_of(base::Duration duration);

// `share` of 0.5 is the median; none: there are no values.
std::optional<double> percentile(std::vector<double> values, double share);

// "80.5 ms", "12.3 s", "84.2 %", "1.25 GB", "12,345".
std::string value_text(Unit unit, double value);
// "0.33x".
std::string ratio_text(double ratio);
// "12,345".
std::string count_text(std::uint64_t count);

}  // namespace spillway::compare
