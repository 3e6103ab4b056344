// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/arguments.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "sim/scenario/scenario.h"
#include "switch/fabric/port.h"
#include "tools/cli/commands.h"

namespace spillway::cli {
namespace {

void read_topology_file(const std::string& source, scenario::Scenario& scenario) {
  if (scenario.topology.kind == scenario::TopologyKind::kFile) {
    const std::filesystem::path folder = std::filesystem::path(source).parent_path();
    scenario.topology.file_text = read_text(folder / scenario.topology.file);
  }
}

// Throws a usage error if the overrides make a possible network impossible. A network that is
// impossible without them fails where it is made.
void check_overridden(const scenario::Scenario& scenario, const std::string& text,
                      const std::string& source, const std::string& options) {
  const base::Status status = scenario::build_topology(scenario).status();
  if (status.ok()) {
    return;
  }
  base::Result<scenario::Scenario> unchanged = scenario::parse_scenario(text, {});
  if (!unchanged.ok()) {
    return;
  }
  read_topology_file(source, unchanged.value());
  if (scenario::build_topology(*unchanged).ok()) {
    throw CLI::ValidationError(options, status.message());
  }
}

}  // namespace

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) {
    throw CommandError(fmt::format("cannot read {}", path.string()));
  }
  return text.str();
}

scenario::Scenario scenario_from(const std::string& text, const std::string& source,
                                 std::span<const std::string> overrides,
                                 const std::string& options) {
  base::Result<scenario::Scenario> parsed = scenario::parse_scenario(text, overrides);
  if (!parsed.ok() && scenario::parse_scenario(text, {}).ok()) {
    throw CLI::ValidationError(options, fmt::format("{}: {}", source, parsed.status().message()));
  }
  if (!parsed.ok()) {
    throw CommandError(fmt::format("{}: {}", source, parsed.status().message()));
  }
  scenario::Scenario scenario = std::move(parsed).value();
  read_topology_file(source, scenario);
  if (!overrides.empty()) {
    check_overridden(scenario, text, source, options);
  }
  return scenario;
}

scenario::Scenario load_scenario(const std::string& path, std::span<const std::string> overrides) {
  return scenario_from(read_text(path), path, overrides);
}

AttachedScenario load_attached_scenario(const std::string& path,
                                        std::span<const std::string> overrides) {
  const auto in_file = [&path](const base::Status& status) {
    return CommandError(fmt::format("{}: {}", path, status.message()));
  };
  AttachedScenario attached;
  attached.scenario = load_scenario(path, overrides);
  const base::Result<scenario::Topology> topology = scenario::build_topology(attached.scenario);
  if (!topology.ok()) {
    throw in_file(topology.status());
  }
  base::Result<std::vector<fabric::PortAttachment>> ports =
      fabric::port_attachments(attached.scenario, *topology);
  if (!ports.ok()) {
    throw in_file(ports.status());
  }
  attached.ports = std::move(ports).value();
  return attached;
}

}  // namespace spillway::cli
