// SPDX-License-Identifier: Apache-2.0
//
// What came of a lab, for people and as JSON.
#pragma once

#include <string>

#include "lab/lab_options.h"

namespace spillway::cli {

// What the fabric did to how many frames, in a few lines.
std::string lab_summary(const lab::LabOutcome& outcome);

std::string lab_outcome_json(const lab::LabOutcome& outcome);

}  // namespace spillway::cli
