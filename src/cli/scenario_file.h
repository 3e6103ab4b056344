// SPDX-License-Identifier: Apache-2.0
//
// A scenario from its text, with the topology file it names, if any, from the folder the text came
// from; and one that also says where its hosts are attached (`port` lines), for switches between
// real hosts. What cannot be read or understood is a CommandError with the file's name.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "fabric/emulator.h"
#include "scenario/scenario.h"

namespace spillway::cli {

std::string read_text(const std::filesystem::path& path);

// `source` is what messages call the text: its path, unless it came from elsewhere.
scenario::Scenario scenario_from(const std::string& text, const std::string& source,
                                 std::span<const std::string> overrides);
scenario::Scenario load_scenario(const std::string& path, std::span<const std::string> overrides);

struct AttachedScenario {
  scenario::Scenario scenario;
  std::vector<fabric::PortAttachment> ports;  // one per host
};

AttachedScenario load_attached_scenario(const std::string& path,
                                        std::span<const std::string> overrides);

}  // namespace spillway::cli
