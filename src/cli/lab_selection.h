// SPDX-License-Identifier: Apache-2.0
//
// Which running lab a command means.
#pragma once

#include <string>

#include "lab/state_directory.h"

namespace spillway::cli {

// The one of that name; an empty name means the only one there is. Throws CommandError, naming
// those that run.
lab::LabRecord select_lab(const std::string& name);

}  // namespace spillway::cli
