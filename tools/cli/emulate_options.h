// SPDX-License-Identifier: Apache-2.0
//
// Options that several verbs of `emulate` share, and their parsed results.
#pragma once

#include <CLI/CLI.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "emulate/llm_step.h"
#include "emulate/simulate/flow_model.h"
#include "sim/scenario/scenario.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"

namespace spillway::cli {

// ------------------------------------------------------------------ networks, ranks and traces

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
  emulate::CollectiveAlgorithm algorithm = emulate::CollectiveAlgorithm::kAutomatic;
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

// ------------------------------------------------------------------ labs

// Ranks may be hosts of a lab: the lab's options, and the command with which this tool then starts
// itself.

struct EmulateLabOptions {
  std::string preset;              // empty: no lab
  std::vector<std::string> words;  // further arguments for `spillway lab run`
};

// `what` begins the help text of --preset: what is done in the lab.
void add_lab_options(CLI::App& command, EmulateLabOptions& options, const std::string& what);

// Path of this tool; in a lab no other name is sure to find it.
std::string own_program();

// The `spillway lab run` command that runs `command` at every host.
std::vector<std::string> lab_command(const EmulateLabOptions& options, std::size_t hosts,
                                     const std::vector<std::string>& command);

// ------------------------------------------------------------------ models

// The shape of a model and its parallelism.

void add_llm_options(CLI::App& command, emulate::LlmStepOptions& options);
// Throws a usage error if the numbers do not fit together.
void check_model(const emulate::LlmStepOptions& options);

}  // namespace spillway::cli
