// SPDX-License-Identifier: Apache-2.0
#include "cli/lab_options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <string_view>

#include "cli/command_error.h"
#include "cli/scenario_file.h"
#include "dataplane/port_config.h"
#include "lab/environment.h"
#include "lab/presets.h"
#include "lab/python_package.h"
#include "sim/simulation.h"
#include "sim/units_text.h"

namespace spillway::cli {
namespace {

using Overrides = std::vector<std::string>;

std::string base_text(const NetworkArguments& arguments) {
  if (!arguments.scenario.empty()) {
    return read_text(arguments.scenario);
  }
  const std::string name = arguments.preset.empty() ? "clean" : arguments.preset;
  const lab::Preset preset = value_or_throw(lab::find_preset(name));
  return arguments.hosts ? preset.text_for(*arguments.hosts) : std::string(preset.text);
}

std::string source_name(const NetworkArguments& arguments) {
  if (!arguments.scenario.empty()) {
    return arguments.scenario;
  }
  return fmt::format("preset {}", arguments.preset.empty() ? "clean" : arguments.preset);
}

// ------------------------------------------------------------------ options as overrides

Overrides topology_overrides(const NetworkArguments& arguments) {
  Overrides overrides;
  const auto add = [&overrides](std::string_view name, const std::string& value) {
    if (!value.empty()) {
      overrides.push_back(fmt::format("{}={}", name, value));
    }
  };
  const auto add_number = [&add](std::string_view name, std::optional<std::uint32_t> value) {
    add(name, value ? std::to_string(*value) : "");
  };
  add("topology", arguments.fabric);
  add_number("topology.hosts", arguments.hosts);
  add_number("topology.leaves", arguments.leaves);
  add_number("topology.spines", arguments.spines);
  add("topology.rate", arguments.rate);
  add("topology.delay", arguments.delay);
  for (const std::string& change : arguments.overrides) {
    if (change.starts_with("topology")) {
      overrides.push_back(change);
    }
  }
  return overrides;
}

// Thresholds that count from the queue's size follow it, as they do where it is the default.
Overrides switch_overrides(const NetworkArguments& arguments, const sim::Scenario& base) {
  Overrides overrides;
  auto mode = static_cast<spillway_port_mode>(base.port.mode);
  if (!arguments.mode.empty()) {
    overrides.push_back(fmt::format("switch.mode={}", arguments.mode));
    mode = static_cast<spillway_port_mode>(sim::parse_scenario({}, overrides)->port.mode);
  }
  if (arguments.buffer.empty()) {
    return overrides;
  }
  const auto bytes =
      static_cast<std::uint32_t>(value_or_throw(sim::parse_bytes(arguments.buffer)).count());
  const spillway_port_config port = sim::with_buffer(dataplane::default_port_config(mode), bytes);
  overrides.push_back(fmt::format("switch.queue={}", bytes));
  if (mode == SPILLWAY_PORT_ECN) {
    overrides.push_back(fmt::format("switch.ecn={}", port.red_min_bytes));
  } else if (mode == SPILLWAY_PORT_SPILLWAY) {
    overrides.push_back(fmt::format("switch.ecn={}", port.ecn_bytes));
    overrides.push_back(fmt::format("switch.early-drop={}", port.early_drop_bytes));
  }
  return overrides;
}

// ------------------------------------------------------------------ options as lines

std::string fault_lines(const sim::Topology& topology, std::string_view kind,
                        std::string_view share) {
  std::string lines;
  for (const sim::Link& link : topology.links) {
    const sim::NodeId host = std::min(link.a, link.b);
    const sim::NodeId other = std::max(link.a, link.b);
    if (host < topology.hosts()) {
      lines += fmt::format("fault kind={} link={}->{} share={}\n", kind, topology.node_name(other),
                           topology.node_name(host), share);
    }
  }
  return lines;
}

std::string additional_lines(const NetworkArguments& arguments, const sim::Scenario& base) {
  std::string lines;
  if (!arguments.loss.empty() || !arguments.bursty.empty()) {
    const sim::Topology topology = value_or_throw(sim::build_topology(base));
    lines += arguments.loss.empty() ? "" : fault_lines(topology, "loss", arguments.loss);
    lines += arguments.bursty.empty() ? "" : fault_lines(topology, "bursty", arguments.bursty);
  }
  for (const std::string& tenant : arguments.background) {
    lines += fmt::format("tenant {}\n", tenant);
  }
  return lines;
}

sim::Scenario scenario_of(const NetworkArguments& arguments) {
  const std::string text = base_text(arguments);
  Overrides overrides = topology_overrides(arguments);
  const sim::Scenario base = scenario_from(text, source_name(arguments), overrides);
  for (const std::string& change : switch_overrides(arguments, base)) {
    overrides.push_back(change);
  }
  overrides.insert(overrides.end(), arguments.overrides.begin(), arguments.overrides.end());
  return scenario_from(text + "\n" + additional_lines(arguments, base), source_name(arguments),
                       overrides);
}

void check_variables(const std::vector<std::string>& variables) {
  for (const std::string& variable : variables) {
    if (variable.find('=') == std::string::npos || variable.front() == '=') {
      throw CommandError(fmt::format("--env '{}' is not NAME=VALUE", variable));
    }
  }
}

void add_shape_options(CLI::App& command, NetworkArguments& arguments) {
  command.add_option("--hosts", arguments.hosts, "How many hosts, and so ranks");
  command.add_option("--rate", arguments.rate, "Of every link: 1gbit, 200mbit");
  command.add_option("--buffer", arguments.buffer, "Of every switch queue: 64k");
  command.add_option("--delay", arguments.delay, "Of every link: 10us");
  command.add_option("--fabric", arguments.fabric, "Shape of the network")
      ->check(CLI::IsMember({"one-switch", "leaf-spine", "fat-tree"}));
  command.add_option("--leaves", arguments.leaves, "Of a leaf-spine");
  command.add_option("--spines", arguments.spines, "Of a leaf-spine");
  command.add_option("--mode", arguments.mode, "What switches do when they are full")
      ->check(CLI::IsMember({"spillway", "trim", "ecn", "drop-tail"}));
  command.add_option("--loss", arguments.loss, "Random loss on every link to a host: 1%");
  command.add_option("--bursty", arguments.bursty, "The same in bursts");
  command
      .add_option("--background", arguments.background,
                  "Somebody else's traffic: \"from=host1 to=host0 protocol=udp rate=50%\"; may be "
                  "repeated")
      ->allow_extra_args(false);
}

}  // namespace

void add_network_options(CLI::App& command, NetworkArguments& arguments) {
  CLI::Option* preset =
      command.add_option("--preset", arguments.preset, "A network by name: see lab presets");
  command
      .add_option("--scenario", arguments.scenario,
                  "A file that describes the network (src/sim/scenario.h); its jobs are not run")
      ->excludes(preset);
  add_shape_options(command, arguments);
  command
      .add_option("--set", arguments.overrides,
                  "noun.key=value: change a line of the scenario, after all other options")
      ->allow_extra_args(false);
  command.add_option("--mtu", arguments.mtu, "Of the hosts' interfaces")->capture_default_str();
  command.add_option("--tcp", arguments.tcp, "TCP congestion control of the hosts: cubic, bbr");
  command.add_option("--env", arguments.environment, "NAME=VALUE for every rank; may be repeated")
      ->allow_extra_args(false);
  command
      .add_option("--isolation", arguments.isolation,
                  "root: namespaces; user: namespaces without root; none: loopback only")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "root", "user", "none"}));
  command
      .add_option("--dataplane", arguments.dataplane,
                  "bpf: a switch in the kernel (root, one switch); user: an emulated fabric")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "bpf", "user"}));
}

lab::LabOptions lab_options_of(const NetworkArguments& arguments) {
  check_variables(arguments.environment);
  lab::LabOptions options;
  options.scenario = scenario_of(arguments);
  options.isolation = value_or_throw(lab::parse_isolation(arguments.isolation));
  options.dataplane = arguments.dataplane == "bpf"    ? lab::Dataplane::kBpf
                      : arguments.dataplane == "user" ? lab::Dataplane::kUser
                                                      : lab::Dataplane::kAuto;
  options.mtu = arguments.mtu;
  options.tcp = arguments.tcp;
  const std::vector<std::string> inherited = lab::current_environment();
  options.environment = lab::with_variables(
      lab::python_variables(lab::path_of_this_tool(), inherited), lab::thread_variables(inherited));
  options.environment.insert(options.environment.end(), arguments.environment.begin(),
                             arguments.environment.end());
  return options;
}

}  // namespace spillway::cli
