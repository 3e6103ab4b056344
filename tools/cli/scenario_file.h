// SPDX-License-Identifier: Apache-2.0
//
// Loads a scenario from its text, and the topology file it names, if any, from the text's folder.
// An attached scenario also says where its hosts are attached (`port` lines), for switches between
// real hosts. Throws CommandError with the file's name if a file cannot be read or parsed, and a
// usage error if only the overrides are wrong.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "sim/scenario/scenario.h"
#include "switch/fabric/emulator.h"

namespace spillway::cli {

std::string read_text(const std::filesystem::path& path);

// `source` names the text in messages: its path, unless it came from elsewhere. `options` names the
// options that the overrides came from.
scenario::Scenario scenario_from(const std::string& text, const std::string& source,
                                 std::span<const std::string> overrides,
                                 const std::string& options = "--set");
scenario::Scenario load_scenario(const std::string& path, std::span<const std::string> overrides);

struct AttachedScenario {
  scenario::Scenario scenario;
  std::vector<fabric::PortAttachment> ports;  // one per host
};

AttachedScenario load_attached_scenario(const std::string& path,
                                        std::span<const std::string> overrides);

}  // namespace spillway::cli
