// SPDX-License-Identifier: Apache-2.0
//
// A scenario from its text, with the topology file it names, if any, from the folder the text came
// from. Throws CommandError.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "sim/scenario.h"

namespace spillway::cli {

std::string read_text(const std::filesystem::path& path);

// `source` is what messages call the text: its path, unless it came from elsewhere.
sim::Scenario scenario_from(const std::string& text, const std::string& source,
                            std::span<const std::string> overrides);
sim::Scenario load_scenario(const std::string& path, std::span<const std::string> overrides);

}  // namespace spillway::cli
