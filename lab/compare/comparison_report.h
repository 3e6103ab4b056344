// SPDX-License-Identifier: Apache-2.0
//
// A comparison for its readers: notes, one HTML page, JSON and charts. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lab/compare/comparison.h"
#include "lab/launcher.h"
#include "tools/plot/svg_chart.h"

namespace spillway::compare {

// ------------------------------------------------------------------ notes
//
// Sentences that belong beside the numbers of a comparison: the network in words, and caveats.
// Caveats are failed runs, missing or damaged logs, and an emulation that did not keep up. There is
// no markup.

struct Fact {
  std::string name;
  std::string value;
};

std::vector<Fact> network_facts(const lab::LabOptions& options,
                                const std::vector<Transport>& transports);

// How much slower than the real network this one is, and what that means for step times. Empty if
// time is not slowed.
std::string slowdown_sentence(const lab::Slowdown& slowdown);

std::vector<std::string> notes_of(const Comparison& comparison);

// A comparison as one HTML page that opens without a network: a table, charts as inline SVG, fonts
// of the reader's system, no script. Text from commands and logs is escaped, never markup.

std::string comparison_page(const Comparison& comparison, const std::vector<Fact>& network);

// A comparison as JSON, for programs:
//
//   {"command": [...], "network": {...}, "slowdown": {"preset": 400, "machine": 1},
//    "target_accuracy": 0.8, "rounds": 1, "notes": [...],
//    "runs": [{"transport": "tcp", "backend": "gloo", "tcp": "cubic", "hook": null,
//              "exit_codes": [0, 0], "failure": null, "metrics": {...}, "ratios": {...},
//              "by_round": {...}, "steps": 300, "steps_from": "log", "bad_lines": 0, "evaluations":
//              [...], "samples": [...], "log": "PATH", "output": "PATH", "isolation": ..,
//              "dataplane": .., "late": {"mean_us": 21.5, "limit_us": 200, "missed_frames": 0}}],
//    "split": {"metric": "step_p50_ms", "baseline": "tcp", "explanation": "...",
//              "shares": [{"transport": "spillway", "control": "spillway-over-tcp", "gain": 4.0,
//                          "bits": 2.5, "by_transport": 1.6, "by_scheduling": null}]}}
//
// `slowdown` says how much slower time runs than on the real network: by the preset, and further
// because this machine was late. `failure` is a sentence that says why the first failed round of a
// run failed. Keys of metrics, ratios and by_round are those of metrics_of(); by_round has a list
// for each. Unknown values are null, and so is `split` if there is none. Steps come from the
// command's "log" or from its "optimizer". Exit codes, evaluations and samples (of the fabric over
// time) are those of the first round. Pure.

nlohmann::json comparison_json(const Comparison& comparison, const std::vector<Fact>& network);

// ------------------------------------------------------------------ charts
//
// A comparison as charts: bars of all runs, and plots with one line per run, from the first round.
// Long series are thinned to kMaxChartPoints per line, keeping the peaks.

inline constexpr std::size_t kMaxChartPoints = 240;

// The median step of every run as a bar, with a tick at the 99th percentile. Beside it the gain
// over TCP and its factors (Split).
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
