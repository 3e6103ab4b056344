// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/emulate_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/text.h"
#include "sim/stacks/spillway_stack.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "wire/packet.h"

namespace spillway::cli {

// ------------------------------------------------------------------ networks, ranks and traces

namespace {

// Leaves of --leaf-hosts hosts each, under spines whose total capacity is that of the leaves
// divided by the oversubscription.
std::string leaf_spine_lines(const EmulateNetworkOptions& options, std::uint32_t ranks) {
  const base::BitRate rate = parsed("--rate", base::parse_rate(options.rate));
  const std::uint32_t hosts = std::max(ranks, 2U);
  const std::uint32_t leaves = (hosts + options.leaf_hosts - 1) / options.leaf_hosts;
  const std::string job = options.carried_by == CarriedBy::kTcp
                              ? "job protocol=newreno\nswitch mode=drop-tail queue=256k\n"
                              : "";
  if (leaves < 2) {
    return fmt::format("topology one-switch hosts={} rate={}bit\n{}", hosts, rate.count(), job);
  }
  const std::uint32_t spines = std::min(options.leaf_hosts, 16U);
  const double uplink =
      static_cast<double>(rate.count()) * options.leaf_hosts / spines / options.oversubscription;
  return fmt::format(
      "topology leaf-spine hosts={} leaves={} spines={} rate={}bit uplink-rate={:.0f}bit\n{}",
      leaves * options.leaf_hosts, leaves, spines, rate.count(), uplink, job);
}

// The share of a full packet on the wire that is data.
double efficiency_of(CarriedBy carried_by) {
  sim::SpillwayStackConfig config;
  config.packet_bytes = scenario::SpillwayOptions().packet_bytes;
  const double wire = config.packet_bytes + spillway_frame_overhead(0) + SPILLWAY_WIRE_OVERHEAD;
  const double data = carried_by == CarriedBy::kTcp ? scenario::TcpConfig().payload_bytes
                                                    : sim::payload_bytes(config);
  return data / wire;
}

void add_topology_options(CLI::App& command, EmulateNetworkOptions& options) {
  command.add_option("--scenario", options.scenario,
                     "A network of your own, a host for each rank (sim/scenario/scenario.h)");
  command.add_option("--set", options.overrides, "noun.key=value: changes a line of the network")
      ->allow_extra_args(false);
  command.add_option("--rate", options.rate, "Rate of hosts' links, unless the scenario names one")
      ->capture_default_str();
  command
      .add_option("--oversubscription", options.oversubscription,
                  "Rate of a leaf's hosts over that of its uplinks")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 1000.0));
  command.add_option("--leaf-hosts", options.leaf_hosts, "Hosts under one switch")
      ->capture_default_str()
      ->check(whole_number(2, 4096));
  command
      .add_option("--node-ranks", options.node_ranks,
                  "Ranks of a node, which reach each other without the network")
      ->capture_default_str()
      ->check(whole_number(1, 4096));
  command.add_option("--node-rate", options.node_rate, "Rate of each rank's link inside its node")
      ->capture_default_str();
}

}  // namespace

scenario::Scenario network_of(const EmulateNetworkOptions& options, std::uint32_t ranks) {
  if (!options.scenario.empty()) {
    return load_scenario(options.scenario, options.overrides);
  }
  const std::string text = leaf_spine_lines(options, ranks);
  check_option("--rate", scenario::build_topology(scenario_from(text, "the network", {})).status());
  return scenario_from(text, "the network", options.overrides);
}

emulate::FabricPaths paths_of(const EmulateNetworkOptions& options, std::uint32_t ranks) {
  const emulate::FabricOptions fabric = {
      .node_ranks = options.node_ranks,
      .node_rate = parsed("--node-rate", base::parse_rate(options.node_rate)),
      .paths = options.carried_by == CarriedBy::kTcp ? 1U : 8U};
  return made_on_network(options, ranks, [&](const scenario::Scenario& network) {
    const base::Result<scenario::Topology> topology = scenario::build_topology(network);
    return topology.ok() ? emulate::FabricPaths::make(*topology, ranks, fabric)
                         : base::Result<emulate::FabricPaths>(topology.status());
  });
}

emulate::FlowModelOptions flow_options_of(const EmulateNetworkOptions& options) {
  return {.algorithm = options.algorithm,
          .efficiency = efficiency_of(options.carried_by),
          .all_reduce_factor = options.bits / 32.0,
          .step_overhead = parsed("--step-overhead", base::parse_duration(options.step_overhead))};
}

std::pair<std::uint32_t, std::string> rank_and(const char* option, const std::string& text) {
  const std::size_t at = text.find('=');
  std::uint32_t rank = 0;
  if (at == std::string::npos || !CLI::detail::lexical_cast(text.substr(0, at), rank)) {
    throw CLI::ValidationError(option, fmt::format("'{}' is not RANK=VALUE", text));
  }
  return {rank, text.substr(at + 1)};
}

void check_ranks(const char* option, const std::vector<std::string>& texts, std::uint32_t ranks) {
  for (const std::string& text : texts) {
    if (const std::uint32_t rank = rank_and(option, text).first; rank >= ranks) {
      throw CLI::ValidationError(
          option, fmt::format("there is no rank {}: ranks are 0 to {}", rank, ranks - 1));
    }
  }
}

std::pair<std::uint32_t, double> rank_and_factor(const char* option, const std::string& text) {
  const auto [rank, value] = rank_and(option, text);
  double factor = 0.0;
  if (!CLI::detail::lexical_cast(value, factor) || !(factor > 0.0 && factor <= 1e6)) {
    throw CLI::ValidationError(
        option, fmt::format("'{}' is not a factor above 0 and up to 1000000", value));
  }
  return {rank, factor};
}

void add_network_options(CLI::App& command, EmulateNetworkOptions& options) {
  add_topology_options(command, options);
  command.add_option("--transport", options.carried_by, "spillway or tcp")
      ->transform(CLI::CheckedTransformer(std::map<std::string, CarriedBy>{
          {"spillway", CarriedBy::kSpillway}, {"tcp", CarriedBy::kTcp}}));
  command
      .add_option("--algorithm", options.algorithm,
                  "auto: as the library chooses; ring, direct, or switch: switches add")
      ->transform(CLI::CheckedTransformer(std::map<std::string, emulate::CollectiveAlgorithm>{
          {"auto", emulate::CollectiveAlgorithm::kAutomatic},
          {"ring", emulate::CollectiveAlgorithm::kRing},
          {"direct", emulate::CollectiveAlgorithm::kDirect},
          {"switch", emulate::CollectiveAlgorithm::kSwitch}}));
  command
      .add_option(
          "--bits", options.bits,
          "Bits of 32 that a codec sends in all-reduces: 5 with planes, 8 with lanes of levels")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 32.0));
  command
      .add_option("--step-overhead", options.step_overhead,
                  "Overhead of hosts for each step of a collective")
      ->capture_default_str();
}

// ------------------------------------------------------------------ labs

void add_lab_options(CLI::App& command, EmulateLabOptions& options, const std::string& what) {
  command.add_option("--preset", options.preset,
                     what + " a lab with this network (spillway lab presets)");
  command
      .add_option("--lab", options.words, "A further word for that lab: --lab=--rate --lab=1gbit")
      ->allow_extra_args(false);
}

std::string own_program() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    throw CommandError("/proc/self/exe cannot be read");
  }
  return program.string();
}

std::vector<std::string> lab_command(const EmulateLabOptions& options, std::size_t hosts,
                                     const std::vector<std::string>& command) {
  std::vector<std::string> words = {
      own_program(), "lab", "run", "--preset", options.preset, "--hosts", std::to_string(hosts)};
  words.insert(words.end(), options.words.begin(), options.words.end());
  words.emplace_back("--");
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

// ------------------------------------------------------------------ models

void check_model(const emulate::LlmStepOptions& options) {
  if (const base::Status status = emulate::validate(options); !status.ok()) {
    throw CLI::ValidationError("the model", status.message());
  }
}

void add_llm_options(CLI::App& command, emulate::LlmStepOptions& options) {
  const auto add = [&command](const char* name, std::uint32_t& value, const char* text) {
    command.add_option(name, value, text)
        ->capture_default_str()
        ->check(whole_number(1, emulate::kMaxModelNumber))
        ->group("Model");
  };
  add("--tensor", options.tensor, "Tensor-parallel ranks");
  add("--data", options.data, "Data-parallel ranks");
  add("--pipeline", options.pipeline, "Pipeline stages");
  add("--expert", options.expert,
      "Expert-parallel ranks, among the data-parallel ones; 1: no experts");
  add("--layers", options.layers, "Layers of the transformer");
  add("--hidden", options.hidden, "Width of a layer");
  add("--sequence", options.sequence, "Tokens of a sequence");
  add("--vocabulary", options.vocabulary, "Tokens there are");
  add("--micro-batch", options.micro_batch, "Sequences of a micro-batch");
  add("--micro-batches", options.micro_batches,
      "Micro-batches of a step, at each data-parallel rank");
  add("--experts", options.experts, "Experts of a layer");
  add("--experts-per-token", options.experts_per_token, "Experts that a token goes to");
  add("--value-bytes", options.value_bytes, "Bytes of an activation's value");
  add("--gradient-bytes", options.gradient_bytes, "Bytes of a gradient's value");
  add("--steps", options.steps, "Training steps, one after another");
  command
      .add_option("--flops", options.flops, "Operations that a rank does in a second, in practice")
      ->capture_default_str()
      ->group("Model");
}

}  // namespace spillway::cli
