// SPDX-License-Identifier: Apache-2.0
//
// Helpers for tests of traces: short node constructors, worlds made of them, foreign files.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "emulate/simulate/flow_model.h"
#include "emulate/simulate/graph_run.h"
#include "emulate/simulate/packet_model.h"
#include "emulate/trace/graph.h"
#include "sim/scenario/scenario.h"

namespace spillway::emulate {

inline Node compute_node(std::uint64_t id, std::vector<std::uint64_t> deps = {},
                         base::Duration duration = base::microseconds(1)) {
  Node node;
  node.id = id;
  node.kind = NodeKind::kCompute;
  node.duration = duration;
  node.data_deps = std::move(deps);
  return node;
}

inline Node collective_node(std::uint64_t id, CollectiveKind kind, std::uint64_t bytes,
                            std::string group = "", std::vector<std::uint64_t> deps = {}) {
  Node node;
  node.id = id;
  node.kind = NodeKind::kCollective;
  node.collective = kind;
  node.bytes = bytes;
  node.group = std::move(group);
  node.data_deps = std::move(deps);
  return node;
}

inline Node message_node(std::uint64_t id, NodeKind kind, std::uint32_t peer, std::uint64_t bytes,
                         std::vector<std::uint64_t> deps = {}, std::int32_t tag = 0) {
  Node node;
  node.id = id;
  node.kind = kind;
  node.peer = peer;
  node.bytes = bytes;
  node.tag = tag;
  node.data_deps = std::move(deps);
  return node;
}

// Takes one list of nodes per rank; every rank declares the groups.
inline World world_of(const std::vector<std::vector<Node>>& ranks,
                      const std::vector<GroupInfo>& groups = {}, GraphOptions options = {}) {
  GraphBuilder builder(options);
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
    builder.set_source("rank" + std::to_string(rank), rank);
    RankInfo info;
    info.rank = rank;
    info.groups = groups;
    static_cast<void>(builder.on_rank(info));
    for (const Node& node : ranks[rank]) {
      static_cast<void>(builder.on_node(node));
    }
  }
  return std::move(builder).finish();
}

// Empty if the files are not on this machine.
inline std::filesystem::path foreign_traces() {
  const std::filesystem::path found =
      std::filesystem::path(SPILLWAY_TEST_DATA) / "../../../shared/data/chakra";
  return std::filesystem::exists(found) ? found : std::filesystem::path();
}

// Helpers for tests of simulations: run a world on a network given as lines of a scenario.

inline scenario::Scenario scenario_of_lines(const std::string& lines) {
  return scenario::parse_scenario(lines).value();
}

inline GraphRunResult run_flows(const World& world, const std::string& lines,
                                const FlowModelOptions& model_options = {},
                                const FabricOptions& fabric = {},
                                const GraphRunOptions& options = {}) {
  const scenario::Topology topology = scenario::build_topology(scenario_of_lines(lines)).value();
  const FabricPaths paths = FabricPaths::make(topology, world.size(), fabric).value();
  const Matches matches(world);
  FlowModel model(world, paths, model_options);
  return GraphRun(world, matches, model, options).run();
}

inline GraphRunResult run_packets(const World& world, const std::string& lines,
                                  CollectiveAlgorithm algorithm = CollectiveAlgorithm::kAutomatic) {
  const Matches matches(world);
  const auto model = PacketModel::make(world, scenario_of_lines(lines), algorithm).value();
  const GraphRunOptions options;
  return GraphRun(world, matches, *model, options).run();
}

inline double seconds_of(const GraphRunResult& result) {
  return static_cast<double>(result.ended.since_zero().count()) / 1e9;
}

}  // namespace spillway::emulate
