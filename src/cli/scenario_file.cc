// SPDX-License-Identifier: Apache-2.0
#include "cli/scenario_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/commands.h"

namespace spillway::cli {
namespace {

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) {
    throw CommandError(fmt::format("cannot read {}", path.string()));
  }
  return text.str();
}

}  // namespace

sim::Scenario load_scenario(const std::string& path, std::span<const std::string> overrides) {
  base::Result<sim::Scenario> parsed = sim::parse_scenario(read_text(path), overrides);
  if (!parsed.ok()) {
    throw CommandError(fmt::format("{}: {}", path, parsed.status().message()));
  }
  sim::Scenario scenario = std::move(parsed).value();
  if (scenario.topology.kind == sim::TopologyKind::kFile) {
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    scenario.topology.file_text = read_text(folder / scenario.topology.file);
  }
  return scenario;
}

}  // namespace spillway::cli
