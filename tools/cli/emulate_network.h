// SPDX-License-Identifier: Apache-2.0
//
// Options shared by verbs of `emulate`: a simulated network, ranks, traces; and their parsed
// results.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "emulate/simulate/fabric_paths.h"
#include "emulate/simulate/flow_model.h"
#include "sim/scenario/scenario.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"

namespace spillway::cli {

inline constexpr const char* kTracePlace =
    "A trace: a file, a folder, or the prefix of PREFIX.0.et, PREFIX.1.et, ...";

enum class CarriedBy { kSpillway, kTcp };

struct EmulateNetworkOptions {
  std::string scenario;
  std::vector<std::string> overrides;
  std::string rate = "100gbit";
  double oversubscription = 1.0;
  std::uint32_t leaf_hosts = 32;
  std::uint32_t node_ranks = 1;
  std::string node_rate = "3600gbit";
  CarriedBy carried_by = CarriedBy::kSpillway;
  emulate::CutAlgorithm algorithm = emulate::CutAlgorithm::kAutomatic;
  double bits = 32.0;
  std::string step_overhead = "0";
};

void add_network_options(CLI::App& command, EmulateNetworkOptions& options);

// The network, with a host for each of `ranks` ranks.
scenario::Scenario network_of(const EmulateNetworkOptions& options, std::uint32_t ranks);

// Returns make(the network), or throws: a usage error if it fails only because of --set.
template <typename Make>
auto made_on_network(const EmulateNetworkOptions& options, std::uint32_t ranks, const Make& make) {
  auto made = make(network_of(options, ranks));
  if (!made.ok() && !options.overrides.empty()) {
    EmulateNetworkOptions unchanged = options;
    unchanged.overrides.clear();
    check_option("--set", make(network_of(unchanged, ranks)).ok() ? made.status() : base::Status());
  }
  return value_or_throw(std::move(made));
}

emulate::FabricPaths paths_of(const EmulateNetworkOptions& options, std::uint32_t ranks);
emulate::FlowModelOptions flow_options_of(const EmulateNetworkOptions& options);

// Parses "3=1.5" or "3=20ms": a rank and a value.
std::pair<std::uint32_t, std::string> rank_and(const char* option, const std::string& text);
// Throws a usage error if a text names a rank that is not below `ranks`.
void check_ranks(const char* option, const std::vector<std::string>& texts, std::uint32_t ranks);
// Parses "3=1.5": a rank and the factor by which its computing takes longer.
std::pair<std::uint32_t, double> rank_and_factor(const char* option, const std::string& text);

}  // namespace spillway::cli
