// SPDX-License-Identifier: Apache-2.0
//
// Runs of one command on one network, and the metrics to compare them by: values per run, and their
// ratios to the first run's. Plain values; pure functions.
//
// A run's steps are those of its log or, if that has no times, those that the lab observed. The
// first kFirstSteps, in which connections, buffers and estimates are set up, are shown separately
// and are in no percentile. With several rounds a value is the mean over the rounds. Rounds of
// different transports take turns, so other load on the machine affects all of them alike.
//
// A run that failed, was stopped or hit its limit has only step metrics: its times and bytes cover
// only a part. Failed rounds count only if no round of the run went well.
//
// Percentiles use the nearest rank. Bytes and packets are those of all switch ports, including
// background traffic, of which a longer run has more.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/compare/progress_log.h"
#include "lab/compare/transport.h"
#include "lab/launcher.h"
#include "lab/network/lab_fabric.h"

namespace spillway::compare {

inline constexpr std::size_t kFirstSteps = 3;

// One command over one transport, from beginning to end.
struct RunRecord {
  Transport transport;
  std::size_t round = 1;
  lab::LabOutcome outcome;
  lab::Slowdown slowdown{};                // of its network
  std::string not_made;                    // why there was no run; `outcome` is then empty
  std::string late;                        // why its numbers are left out: the lab was late
  std::vector<lab::FabricSample> samples;  // sorted by time
  ProgressLog log;                         // of the command
  ProgressLog watched;                     // what the lab saw of a PyTorch script
  bool is_watched = true;                  // false: the package that watches is not installed
  std::string log_path;
  std::string watched_path;
  std::string output_path;              // what the ranks printed
  std::vector<RunRecord> later_rounds;  // the later rounds; their own `later_rounds` are empty
};

// Runs of one command on one network.
struct Comparison {
  std::vector<std::string> command;  // with its placeholders
  std::vector<RunRecord> runs;       // the others are compared with the first
  std::size_t rounds = 1;
  std::optional<double> wanted_accuracy;  // 0 to 1; unset: see target_accuracy()
  std::vector<std::string> left_out;      // names of transports that an interrupt kept from running
};

// The first run that was made; null if there is none.
const RunRecord* first_made(const Comparison& comparison);

// That of the first run: all runs have the same network.
lab::Slowdown slowdown_of(const Comparison& comparison);

// False for runs that failed in any way: not made, late, stopped, over the limit, exit code not 0.
bool went_well(const RunRecord& run);
// Why a run failed, as the rest of a sentence; empty if it went well.
std::string failure_of(const RunRecord& run);
// The same in one to three words, for a table: "done", "failed: exit code 3".
std::string result_text(const RunRecord& run);

enum class Unit : std::uint8_t { kMilliseconds, kSeconds, kShare, kBytes, kPackets };

enum class Better : std::uint8_t { kLess, kMore, kNeither };

struct Metric {
  std::string key;    // for machines: "step_p50_ms"
  std::string label;  // for people: "step time, median"
  Unit unit = Unit::kSeconds;
  Better better = Better::kLess;
  std::vector<std::vector<std::optional<double>>> by_round;  // [run][round]
  std::vector<std::optional<double>> values;  // per run, over all rounds; null: unknown
  std::vector<std::optional<double>> ratios;  // to the first run's; null: unknown
};

// Below so many steps the accuracy says how many steps a run took, not how good its gradients were.
inline constexpr std::size_t kLeastStepsForAccuracy = 100;
// True if every run that was evaluated has as many steps.
bool accuracy_is_comparable(const Comparison& comparison);

// The wanted accuracy; if none was given, the highest that all successful rounds with evaluations
// reached (all rounds, if no successful one has any). Null if there are no evaluations.
std::optional<double> target_accuracy(const Comparison& comparison);

enum class StepSource : std::uint8_t { kNone, kLog, kOptimizer };

StepSource step_source(const RunRecord& run);

// Milliseconds, in order: of all steps, and without the first kFirstSteps.
std::vector<double> step_times(const RunRecord& run);
std::vector<double> steady_step_times(const RunRecord& run);

// The run and its repeats.
std::vector<const RunRecord*> rounds_of(const RunRecord& run);
// Null if all rounds went well.
const RunRecord* first_failed_round(const RunRecord& run);
// True if a round of any run did not go well.
bool has_failures(const Comparison& comparison);

// Always the same metrics in the same order, even if no run has a value.
std::vector<Metric> metrics_of(const Comparison& comparison);

// The smallest value that `share` of the values do not exceed; 0.5 is the median. Null if there are
// none.
std::optional<double> percentile(std::vector<double> values, double share);

// "80.5 ms", "12.3 s", "84.2 %", "1.25 GB", "12,345".
std::string value_text(Unit unit, double value);
// "0.33x".
std::string ratio_text(double ratio);
// "12,345".
std::string count_text(std::uint64_t count);

// Where a gain over TCP comes from: fewer bits, the transport that carries them, or the order in
// which it carries them. The baseline is TCP at its best: the faster of `tcp` and `tcp-bbr`, as far
// as they were compared. Each transport has a control that sends the same bits over plain TCP.
// `spillway` also has a flat twin that sends no layer before another (transport.h). So
//
//   gain       = time of the baseline / time of the run          above 1: faster
//   bits       = time of the baseline / time of the control
//   transport  = time of the control / time of the flat twin
//   scheduling = time of the flat twin / time of the run
//
// and gain = bits x transport x scheduling. Without a twin in the comparison, scheduling is unknown
// and part of the transport. A failed run has no time. A transport that is its own control gains by
// bits alone. A transport with the bits of `tcp` has the baseline as its control, and gains by its
// transport alone. The other controls run over TCP cubic only. Times are medians of steps or, if a
// run that did not fail has none, times of the whole command. Other differences between a transport
// and its control count, too. Spillway's collectives are in the bits of `spillway`, whose
// control has them. They are in the transport of `spillway-16`, whose control uses Gloo's. Pure
// functions.

struct GainShare {
  std::string name;     // the transport's
  std::string title;    // the same, for people
  std::string control;  // transport that sends the same bits over plain TCP
  std::optional<double> gain;
  std::optional<double> bits;  // null: the control was not run, or has no time
  std::optional<double> transport;
  std::optional<double> scheduling;  // null: no twin was run, or it has no time
};

struct GainSplit {
  Metric metric;                  // source of the times
  std::string baseline;           // "tcp" or "tcp-bbr"
  std::vector<GainShare> shares;  // all runs but the baseline, in their order
};

// Null if neither tcp nor tcp-bbr has a time, or if nothing is compared with it.
std::optional<GainSplit> split_of(const Comparison& comparison);

// Explains the parts to a reader, in a sentence or two.
std::string split_explanation(const GainSplit& split);

}  // namespace spillway::compare
