// SPDX-License-Identifier: Apache-2.0
//
// Findings for people and for machines. In text each finding is a line, the remedy indented below
// it; only a terminal gets colours, and none where NO_COLOR is set (no-color.org).
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "doctor/finding.h"

namespace spillway::cli {

std::string findings_text(std::span<const doctor::Finding> findings, bool coloured);

// {"findings": [{check, severity, finding, remedy}], "summary": {ok, note, warning, error, fit}}
nlohmann::json findings_json(std::span<const doctor::Finding> findings);

// Whether what goes to standard output should be coloured.
bool wants_colours();

}  // namespace spillway::cli
