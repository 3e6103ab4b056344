// SPDX-License-Identifier: Apache-2.0
//
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
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "lab/compare/comparison.h"
#include "lab/compare/notes.h"

namespace spillway::compare {

nlohmann::json comparison_json(const Comparison& comparison, const std::vector<Fact>& network);

}  // namespace spillway::compare
