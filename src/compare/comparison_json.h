// SPDX-License-Identifier: Apache-2.0
//
// A comparison as JSON, for programs:
//
//   {"command": [...], "network": {...}, "target_accuracy": 0.8, "notes": [...],
//    "runs": [{"transport": "tcp", "backend": "gloo", "exit_codes": [0, 0], "metrics": {...},
//              "ratios": {...}, "steps": 300, "bad_lines": 0, "evaluations": [...],
//              "samples": [...], "log": "PATH", "output": "PATH", "isolation": ..,
//              "dataplane": ..}]}
//
// Keys of metrics and ratios are those of metrics_of(); what is unknown is null. Samples are what
// the fabric was like over time. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "compare/comparison.h"
#include "compare/notes.h"

namespace spillway::compare {

nlohmann::json comparison_json(const Comparison& comparison, const std::vector<Fact>& network);

}  // namespace spillway::compare
