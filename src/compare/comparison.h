// SPDX-License-Identifier: Apache-2.0
//
// Runs of one command on one network, and what they are compared by: numbers per run, and their
// ratio to those of the first. Plain values; pure.
//
// A run's steps are those of its log or, where that has no times, those that the lab saw itself.
// The first kFirstSteps, in which connections, buffers and estimates are made, are shown apart and
// are in no percentile. With several rounds a number is the mean of those of the rounds, which took
// turns: what else the machine did falls on all transports alike.
//
// A run that failed, was stopped or was over its limit has numbers of its steps only: its times and
// bytes are those of a part. Rounds that failed are in no number of a run with better ones.
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

inline constexpr std::size_t kFirstSteps = 3;

// One command over one transport, from beginning to end.
struct RunRecord {
  Transport transport;
  std::size_t round = 1;
  lab::LabOutcome outcome;
  std::string not_made;  // why there was no run; the outcome is then empty
  std::string late;      // why its numbers do not hold: the lab was late. They are left out
  std::vector<lab::FabricSample> samples;  // in the order of their times
  ProgressLog log;                         // of the command
  ProgressLog watched;                     // what the lab saw of a PyTorch script
  bool is_watched = true;                  // false: what would see one is not installed
  std::string log_path;
  std::string watched_path;
  std::string output_path;         // what the ranks printed
  std::vector<RunRecord> repeats;  // the later rounds; these have none
};

// Runs of one command on one network.
struct Comparison {
  std::vector<std::string> command;  // with its placeholders
  std::vector<RunRecord> runs;       // the first is what the others are compared with
  std::size_t rounds = 1;
  std::optional<double> wanted_accuracy;  // 0 to 1; none: see target_accuracy()
  std::vector<std::string> left_out;      // names of transports that an interrupt kept from running
};

// Null: there is none.
const RunRecord* first_made(const Comparison& comparison);

// False for runs that failed in any way: not made, late, stopped, over the limit, exit code not 0.
bool went_well(const RunRecord& run);
// Why one did not go well, as the rest of a sentence; empty if it did.
std::string failure_of(const RunRecord& run);
// The same in a word or three, for a table: "done", "failed: exit code 3".
std::string result_text(const RunRecord& run);

enum class Unit : std::uint8_t { kMilliseconds, kSeconds, kShare, kBytes, kPackets };

enum class Better : std::uint8_t { kLess, kMore, kNeither };

struct Metric {
  std::string key;    // for machines: "step_p50_ms"
  std::string label;  // for people: "step time, median"
  Unit unit = Unit::kSeconds;
  Better better = Better::kLess;
  std::vector<std::vector<std::optional<double>>> by_round;  // per run
  std::vector<std::optional<double>> values;  // per run, of all rounds; none: unknown
  std::vector<std::optional<double>> ratios;  // to the first run's; none: there is none
};

// The wanted accuracy or, where none was given, the highest that all runs with evaluations reached;
// none: there are no evaluations.
std::optional<double> target_accuracy(const Comparison& comparison);

enum class StepSource : std::uint8_t { kNone, kLog, kOptimizer };

StepSource step_source(const RunRecord& run);

// Milliseconds, in their order: all of them, and those without the first.
std::vector<double> step_times(const RunRecord& run);
std::vector<double> steady_step_times(const RunRecord& run);

// The run and its repeats.
std::vector<const RunRecord*> rounds_of(const RunRecord& run);
// Null: all of them went well.
const RunRecord* first_failed_round(const RunRecord& run);
// True if a round of any run did not go well.
bool has_failures(const Comparison& comparison);

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
