// SPDX-License-Identifier: Apache-2.0
//
// A scenario from its file, with the topology file it names, if any, from the same folder. Throws
// CommandError.
#pragma once

#include <span>
#include <string>

#include "sim/scenario.h"

namespace spillway::cli {

sim::Scenario load_scenario(const std::string& path, std::span<const std::string> overrides);

}  // namespace spillway::cli
