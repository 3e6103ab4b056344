// SPDX-License-Identifier: Apache-2.0
#include "cli/scenario_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/command_error.h"

namespace spillway::cli {

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) {
    throw CommandError(fmt::format("cannot read {}", path.string()));
  }
  return text.str();
}

sim::Scenario scenario_from(const std::string& text, const std::string& source,
                            std::span<const std::string> overrides) {
  base::Result<sim::Scenario> parsed = sim::parse_scenario(text, overrides);
  if (!parsed.ok()) {
    throw CommandError(fmt::format("{}: {}", source, parsed.status().message()));
  }
  sim::Scenario scenario = std::move(parsed).value();
  if (scenario.topology.kind == sim::TopologyKind::kFile) {
    const std::filesystem::path folder = std::filesystem::path(source).parent_path();
    scenario.topology.file_text = read_text(folder / scenario.topology.file);
  }
  return scenario;
}

sim::Scenario load_scenario(const std::string& path, std::span<const std::string> overrides) {
  return scenario_from(read_text(path), path, overrides);
}

}  // namespace spillway::cli
