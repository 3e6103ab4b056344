// SPDX-License-Identifier: Apache-2.0
//
// Helpers for tests of simulations: run a world on a network given as lines of a scenario.
#pragma once

#include <string>

#include "emulate/simulate/fabric_paths.h"
#include "emulate/simulate/flow_model.h"
#include "emulate/simulate/graph_run.h"
#include "emulate/simulate/packet_model.h"
#include "sim/scenario/scenario.h"

namespace spillway::emulate {

inline scenario::Scenario scenario_of_lines(const std::string& lines) {
  return scenario::parse_scenario(lines).value();
}

inline GraphRunResult run_flows(const World& world, const std::string& lines,
                                const FlowModelOptions& model_options = {},
                                const FabricOptions& fabric = {},
                                const GraphRunOptions& options = {}) {
  const scenario::Topology topology = scenario::build_topology(scenario_of_lines(lines)).value();
  const FabricPaths paths = FabricPaths::make(topology, world.size(), fabric).value();
  const Meetings meetings(world);
  FlowModel model(world, paths, model_options);
  return GraphRun(world, meetings, model, options).run();
}

inline GraphRunResult run_packets(const World& world, const std::string& lines,
                                  CutAlgorithm algorithm = CutAlgorithm::kAutomatic) {
  const Meetings meetings(world);
  const auto model = PacketModel::make(world, scenario_of_lines(lines), algorithm).value();
  const GraphRunOptions options;
  return GraphRun(world, meetings, *model, options).run();
}

inline double seconds_of(const GraphRunResult& result) {
  return static_cast<double>(result.ended.since_zero().count()) / 1e9;
}

}  // namespace spillway::emulate
