// SPDX-License-Identifier: Apache-2.0
#include "cli/port_lines.h"

#include <fmt/format.h>

#include "cli/command_error.h"
#include "cli/scenario_file.h"
#include "fabric/port_specs.h"
#include "sim/simulation.h"

namespace spillway::cli {

AttachedScenario load_attached_scenario(const std::string& path,
                                        std::span<const std::string> overrides) {
  const auto in_file = [&path](const base::Status& status) {
    return CommandError(fmt::format("{}: {}", path, status.message()));
  };
  AttachedScenario attached;
  attached.scenario = load_scenario(path, overrides);
  const base::Result<sim::Topology> topology = sim::build_topology(attached.scenario);
  if (!topology.ok()) {
    throw in_file(topology.status());
  }
  base::Result<std::vector<fabric::PortSpec>> ports =
      fabric::port_specs(attached.scenario, *topology);
  if (!ports.ok()) {
    throw in_file(ports.status());
  }
  attached.ports = std::move(ports).value();
  return attached;
}

}  // namespace spillway::cli
