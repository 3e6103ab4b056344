// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/lab_command.h"

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "lab/calibration.h"
#include "lab/launcher.h"
#include "lab/network/links.h"
#include "lab/presets.h"
#include "lab/rank_environment.h"
#include "sim/scenario/directives.h"
#include "sim/scenario/scenario.h"
#include "switch/dataplane/port_config.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"

namespace spillway::cli {
namespace {

using Overrides = std::vector<std::string>;

std::string base_text(const NetworkOptions& options) {
  if (!options.scenario.empty()) {
    return read_text(options.scenario);
  }
  const std::string name = options.preset.empty() ? "clean" : options.preset;
  const lab::Preset preset = parsed("--preset", lab::find_preset(name));
  return options.hosts ? preset.text_for(*options.hosts) : std::string(preset.text);
}

std::string source_name(const NetworkOptions& options) {
  if (!options.scenario.empty()) {
    return options.scenario;
  }
  return fmt::format("preset {}", options.preset.empty() ? "clean" : options.preset);
}

// "--hosts, --rate": the given options that override lines of the network.
std::string given_options(const NetworkOptions& options) {
  std::vector<std::string_view> names;
  for (const auto& [name, is_given] :
       {std::pair("--hosts", options.hosts.has_value()), std::pair("--rate", !options.rate.empty()),
        std::pair("--buffer", !options.buffer.empty()),
        std::pair("--delay", !options.delay.empty()),
        std::pair("--fabric", !options.fabric.empty()),
        std::pair("--leaves", options.leaves.has_value()),
        std::pair("--spines", options.spines.has_value()),
        std::pair("--mode", !options.mode.empty()),
        std::pair("--set", !options.overrides.empty())}) {
    if (is_given) {
      names.emplace_back(name);
    }
  }
  return scenario::joined(names);
}

// These become parts of the scenario's text. A wrong one is reported with its option's name.
void check_values(const NetworkOptions& options) {
  if (!options.rate.empty()) {
    parsed("--rate", base::parse_rate(options.rate));
  }
  if (!options.delay.empty()) {
    parsed("--delay", base::parse_duration(options.delay));
  }
  for (const auto& [option, share] :
       {std::pair("--loss", options.loss), std::pair("--bursty", options.bursty)}) {
    if (!share.empty()) {
      parsed(option, base::parse_fraction(share));
    }
  }
  for (const std::string& tenant : options.background) {
    parsed("--background", scenario::parse_scenario(fmt::format("tenant {}\n", tenant)));
  }
}

// ------------------------------------------------------------------ options as overrides

Overrides topology_overrides(const NetworkOptions& options) {
  Overrides overrides;
  const auto add = [&overrides](std::string_view name, const std::string& value) {
    if (!value.empty()) {
      overrides.push_back(fmt::format("{}={}", name, value));
    }
  };
  const auto add_number = [&add](std::string_view name, std::optional<std::uint32_t> value) {
    add(name, value ? std::to_string(*value) : "");
  };
  add("topology", options.fabric);
  add_number("topology.hosts", options.hosts);
  add_number("topology.leaves", options.leaves);
  add_number("topology.spines", options.spines);
  add("topology.rate", options.rate);
  add("topology.delay", options.delay);
  for (const std::string& change : options.overrides) {
    if (change.starts_with("topology")) {
      overrides.push_back(change);
    }
  }
  return overrides;
}

// Thresholds derived from the queue's size follow it, as with the default size.
Overrides switch_overrides(const NetworkOptions& options, const scenario::Scenario& base) {
  Overrides overrides;
  auto mode = static_cast<spillway_port_mode>(base.port.mode);
  if (!options.mode.empty()) {
    overrides.push_back(fmt::format("switch.mode={}", options.mode));
    mode = static_cast<spillway_port_mode>(scenario::parse_scenario({}, overrides)->port.mode);
  }
  if (options.buffer.empty()) {
    return overrides;
  }
  const auto bytes =
      static_cast<std::uint32_t>(parsed("--buffer", base::parse_bytes(options.buffer)).count());
  const spillway_port_config port =
      scenario::with_buffer(dataplane::default_port_config(mode), bytes);
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

std::string fault_lines(const scenario::Topology& topology, std::string_view kind,
                        std::string_view share) {
  std::string lines;
  for (const scenario::Link& link : topology.links) {
    const scenario::NodeId host = std::min(link.a, link.b);
    const scenario::NodeId other = std::max(link.a, link.b);
    if (host < topology.hosts()) {
      lines += fmt::format("fault kind={} link={}->{} share={}\n", kind, topology.node_name(other),
                           topology.node_name(host), share);
    }
  }
  return lines;
}

// Enough slots that chunks in flight rarely collide: a rank has up to 1,024 per owner. All switches
// of a lab share one machine's memory, at 1.5 KB a slot.
std::uint32_t slots_for(const scenario::Topology& topology) {
  constexpr std::uint32_t kPerHost = 8 * 1024;
  constexpr std::uint32_t kOfAll = 128 * 1024;
  constexpr std::uint32_t kLeast = 4096;
  const auto switches = static_cast<std::uint32_t>(topology.switch_names.size());
  return std::max(kLeast, std::min(kPerHost * topology.hosts(), kOfAll / switches));
}

// Switches with hosts add up what these send; the others add up the sums of such switches.
std::string aggregate_lines(const scenario::Topology& topology) {
  std::vector<bool> has_hosts(topology.nodes(), false);
  for (const scenario::Link& link : topology.links) {
    if (std::min(link.a, link.b) < topology.hosts()) {
      has_hosts[std::max(link.a, link.b)] = true;
    }
  }
  std::string lines;
  for (scenario::NodeId node = topology.hosts(); node < topology.nodes(); ++node) {
    lines += fmt::format("aggregate switch={} level={} slots={}\n", topology.node_name(node),
                         has_hosts[node] ? 0 : 1, slots_for(topology));
  }
  return lines;
}

std::string additional_lines(const NetworkOptions& options, const scenario::Scenario& base) {
  std::string lines;
  const bool adds = options.aggregate && base.aggregations.empty();
  if (adds || !options.loss.empty() || !options.bursty.empty()) {
    const scenario::Topology topology = value_or_throw(scenario::build_topology(base));
    lines += adds ? aggregate_lines(topology) : "";
    lines += options.loss.empty() ? "" : fault_lines(topology, "loss", options.loss);
    lines += options.bursty.empty() ? "" : fault_lines(topology, "bursty", options.bursty);
  }
  for (const std::string& tenant : options.background) {
    lines += fmt::format("tenant {}\n", tenant);
  }
  return lines;
}

scenario::Scenario scenario_of(const NetworkOptions& options) {
  check_values(options);
  const std::string text = base_text(options);
  const std::string given = given_options(options);
  Overrides overrides = topology_overrides(options);
  const scenario::Scenario base = scenario_from(text, source_name(options), overrides, given);
  for (const std::string& change : switch_overrides(options, base)) {
    overrides.push_back(change);
  }
  overrides.insert(overrides.end(), options.overrides.begin(), options.overrides.end());
  return scenario_from(text + "\n" + additional_lines(options, base), source_name(options),
                       overrides, given);
}

// Throws a usage error if this lab is impossible only because of options, and CommandError if the
// scenario itself is.
void check_plan(const NetworkOptions& network, const lab::LabOptions& options) {
  const base::Status status = lab::make_host_plan(options.scenario, {.mtu = options.mtu}).status();
  if (status.ok()) {
    return;
  }
  NetworkOptions unchanged;
  unchanged.preset = network.preset;
  unchanged.scenario = network.scenario;
  const scenario::Scenario scenario = scenario_of(unchanged);
  const bool is_possible = lab::make_host_plan(scenario, {.mtu = scenario.topology.mtu}).ok();
  check_option(given_options(network), is_possible ? status : base::Status());
  throw CommandError(status);
}

// 1 where other rates or delays were given: they do not stand for the preset's network.
double preset_slowdown(const NetworkOptions& options) {
  const bool keeps_time =
      options.scenario.empty() && options.rate.empty() && options.delay.empty() &&
      std::ranges::none_of(options.overrides, [](const std::string& change) {
        return change.starts_with("topology.rate=") || change.starts_with("topology.delay=") ||
               change.starts_with("topology.uplink-rate=");
      });
  const std::string name = options.preset.empty() ? "clean" : options.preset;
  return keeps_time ? parsed("--preset", lab::find_preset(name)).slowdown() : 1;
}

void check_lab_variables(const std::vector<std::string>& variables) {
  for (const std::string& variable : variables) {
    if (variable.find('=') == std::string::npos || variable.front() == '=') {
      throw CLI::ValidationError("--env", fmt::format("'{}' is not NAME=VALUE", variable));
    }
  }
}

void add_shape_options(CLI::App& command, NetworkOptions& options) {
  command.add_option("--hosts", options.hosts, "How many hosts")
      ->check(whole_number(1, lab::kMaxHosts));
  command.add_option("--rate", options.rate,
                     "Rate of the links to hosts, which uplinks follow: 1gbit, 200mbit");
  command.add_option("--buffer", options.buffer, "Size of every switch queue: 64k");
  command.add_option("--delay", options.delay, "Delay of every link: 10us");
  command.add_option("--fabric", options.fabric, "Shape of the network")
      ->check(CLI::IsMember({"one-switch", "leaf-spine", "fat-tree"}));
  command.add_option("--leaves", options.leaves, "Leaves of a leaf-spine")
      ->check(whole_number(1, UINT32_MAX));
  command.add_option("--spines", options.spines, "Spines of a leaf-spine")
      ->check(whole_number(1, UINT32_MAX));
  command.add_option("--mode", options.mode, "Behaviour of full switch queues")
      ->check(CLI::IsMember({"spillway", "trim", "ecn", "drop-tail"}));
  command.add_option("--loss", options.loss, "Random loss on every link to a host: 1%");
  command.add_option("--bursty", options.bursty, "The same in bursts");
  command.add_flag("--aggregate", options.aggregate,
                   "Switches add what is coded for it (algorithm switch, codec levels or blocks); "
                   "--set aggregate.slots=512 and the like say how");
  command
      .add_option("--background", options.background,
                  "Somebody else's traffic: \"from=host1 to=host0 protocol=udp rate=50%\"; may be "
                  "repeated")
      ->allow_extra_args(false);
}

}  // namespace

void add_network_options(CLI::App& command, NetworkOptions& options) {
  CLI::Option* preset =
      command.add_option("--preset", options.preset, "A network by name: see lab presets");
  command
      .add_option(
          "--scenario", options.scenario,
          "A file that describes the network (sim/scenario/scenario.h); its jobs are not run")
      ->excludes(preset);
  add_shape_options(command, options);
  command
      .add_option("--set", options.overrides,
                  "noun.key=value: change a line of the scenario, after all other options")
      ->allow_extra_args(false);
  command
      .add_option("--mtu", options.mtu,
                  "MTU of the hosts' interfaces; default: the scenario's, 1500")
      ->check(whole_number(lab::kMinMtu, lab::kMaxMtu));
  command.add_flag("--allow-late", options.allow_late,
                   "Skip the trial of whether this machine emulates the network on time, and keep "
                   "a late run; otherwise a late command runs once more, slower");
  command.add_option("--tcp", options.tcp, "TCP congestion control of the hosts: cubic, bbr");
  command.add_option("--env", options.environment, "NAME=VALUE for every rank; may be repeated")
      ->allow_extra_args(false);
  command
      .add_option("--isolation", options.isolation,
                  "root: namespaces; user: namespaces without root; none: loopback only")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "root", "user", "none"}));
  command
      .add_option("--dataplane", options.dataplane,
                  "bpf: a switch in the kernel (root, one switch); user: an emulated fabric")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "bpf", "user"}));
}

void add_ranks_option(CLI::App& command, NetworkOptions& options) {
  command
      .add_option("--ranks-per-host", options.ranks_per_host,
                  "Ranks that share a host's link and memory, as on a host with several GPUs")
      ->check(whole_number(1, lab::kMaxRanksPerHost));
}

lab::LabOptions lab_options_of(const NetworkOptions& network) {
  check_lab_variables(network.environment);
  lab::LabOptions options;
  options.scenario = scenario_of(network);
  options.slowdown.preset = preset_slowdown(network);
  options.isolation = value_or_throw(lab::parse_isolation(network.isolation));
  options.dataplane = network.dataplane == "bpf"    ? lab::Dataplane::kBpf
                      : network.dataplane == "user" ? lab::Dataplane::kUser
                                                    : lab::Dataplane::kAuto;
  options.ranks_per_host = network.ranks_per_host;
  options.mtu = network.mtu.value_or(options.scenario.topology.mtu);
  check_plan(network, options);
  check_option("--tcp", lab::check_congestion_control(network.tcp));
  options.tcp = network.tcp;
  const std::vector<std::string> inherited = lab::current_environment();
  options.environment = lab::with_variables(
      lab::python_variables(lab::path_of_this_tool(), inherited), lab::thread_variables(inherited));
  options.environment.insert(options.environment.end(), network.environment.begin(),
                             network.environment.end());
  return options;
}

bool has_fixed_rate(const NetworkOptions& network) {
  return !network.rate.empty() ||
         std::ranges::any_of(network.overrides, [](const std::string& change) {
           return change.starts_with("topology.rate=");
         });
}

std::string slower_text(const scenario::Scenario& slowed, double factor) {
  return fmt::format(
      "time {0:g} times as slow: links of {1}, delays and bursts {0:g} times as long, queues as "
      "they are. Ranks compute at full speed, which weighs less against communication",
      factor, lab::rate_option(slowed.topology.rate));
}

std::string remedy_for(const NetworkOptions& network, const scenario::Scenario& scenario,
                       const lab::Pace& late) {
  return network.allow_late && !has_fixed_rate(network)
             ? "leave --allow-late out, and the lab slows itself down until it is on time"
             : lab::remedy_after(scenario, late);
}

namespace {

// On a terminal the line is erased when the trial is over.
lab::Calibration calibrate(const lab::LabOptions& options, Progress progress) {
  const bool is_erased = ::isatty(STDERR_FILENO) == 1;
  if (progress == Progress::kShown) {
    fmt::print(stderr, "spillway: measuring what this machine can emulate on time ...{}",
               is_erased ? "" : "\n");
  }
  const base::Result<lab::Calibration> calibration = lab::calibrate(options);
  if (progress == Progress::kShown && is_erased) {
    fmt::print(stderr, "\r\033[K");
  }
  return value_or_throw(calibration);
}

}  // namespace

lab::LabOptions on_time(lab::LabOptions options, const NetworkOptions& network, Progress progress) {
  if (network.allow_late || !value_or_throw(lab::can_be_late(options))) {
    return options;
  }
  const auto [dilation, interrupted_by] = calibrate(options, progress);
  if (interrupted_by != 0) {
    throw CommandExit{128 + interrupted_by};
  }
  if (dilation == 1) {
    return options;
  }
  const base::BitRate asked = options.scenario.topology.rate;
  options.scenario = scenario::dilated(options.scenario, dilation);
  options.slowdown.machine = dilation;
  const std::string possible = lab::rate_option(options.scenario.topology.rate);
  if (has_fixed_rate(network)) {
    throw CommandError(fmt::format(
        "this machine emulates these links on time up to {}, not at {}: give --rate {}, "
        "leave --rate out, or take --allow-late and compare nothing",
        possible, lab::rate_option(asked), possible));
  }
  fmt::print(stderr, "spillway: this machine emulates links of {} late, so the lab runs with {}\n",
             lab::rate_option(asked), slower_text(options.scenario, dilation));
  return options;
}

CLI::Option* add_lab_command_options(CLI::App& verb, LabCommandOptions& options) {
  add_network_options(verb, options.network);
  add_ranks_option(verb, options.network);
  verb.add_option("--grace", options.grace_seconds,
                  "Seconds the other ranks have to end when one fails")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86400.0));
  verb.add_flag("--json", options.json,
                "Print exit codes and the fabric's counters as JSON; ranks' output then goes to "
                "standard error");
  verb.add_flag("--quiet", options.quiet, "Print nothing but what the ranks print");
  return verb.add_option("command", options.command, "Behind --: what every rank runs")->required();
}

namespace {

// A run that failed tells its own story, so it does not count as late.
lab::EndedRun ended_run(const NetworkOptions& network, const lab::LabOutcome& outcome,
                        bool can_be_slower) {
  return {.was_late = outcome.worst_exit_code() == kExitOk && !outcome.pace.fabric_kept_up(),
          .rate_is_given = has_fixed_rate(network),
          .allows_late = network.allow_late,
          .could_be_tried = outcome.isolation != lab::Isolation::kNone &&
                            outcome.dataplane == lab::Dataplane::kUser,
          .is_staged = std::ranges::any_of(
              network.environment,
              [](const std::string& variable) { return variable.starts_with("SPILLWAY_STAGE="); }),
          .can_be_slower = can_be_slower};
}

lab::LabOutcome run_once(const LabCommandOptions& command, const lab::LabOptions& options) {
  const lab::HostPlan plan =
      value_or_throw(lab::make_host_plan(options.scenario, {.mtu = options.mtu}));
  const std::vector<lab::RankCommand> commands(plan.hosts.size() * options.ranks_per_host,
                                               {command.command, {}});
  lab::LabOutcome outcome = value_or_throw(lab::run_lab(options, commands));
  if (!outcome.pace.fabric_kept_up()) {
    outcome.pace.remedy = remedy_for(command.network, options.scenario, outcome.pace);
  }
  return outcome;
}

}  // namespace

lab::LabOutcome run_lab_command(const LabCommandOptions& command, const lab::TraceOptions& trace) {
  lab::LabOptions options = lab_options_of(command.network);
  if (!has_fixed_rate(command.network)) {
    options = on_time(std::move(options), command.network,
                      command.quiet ? Progress::kHidden : Progress::kShown);
  }
  options.grace = base::nanoseconds(static_cast<std::int64_t>(command.grace_seconds * 1e9));
  options.trace = trace;
  if (command.json) {
    options.output.out = STDERR_FILENO;  // standard output holds only the JSON
  }
  lab::LabOutcome outcome = run_once(command, options);
  const lab::EndedRun run =
      ended_run(command.network, outcome, scenario::can_be_dilated(options.scenario));
  if (lab::after_run(run) != lab::AfterRun::kRunAgainSlower) {
    return outcome;
  }
  const double slowdown = lab::slowdown_after(outcome.pace);
  options.scenario = scenario::dilated(options.scenario, slowdown);
  if (!command.quiet) {
    fmt::print(stderr, "spillway: the lab was late, so the command runs again with {}\n",
               slower_text(options.scenario, slowdown));
  }
  return run_once(command, options);
}

void end_lab_command(const LabCommandOptions& options, const lab::LabOutcome& outcome,
                     const std::string& summary) {
  if (options.json) {
    fmt::print("{}\n", lab_outcome_json(outcome));
  } else if (!options.quiet) {
    fmt::print(stderr, "{}", summary);
  }
  const std::string behind = lab::pace_sentence(outcome.pace);
  if (lab::after_run(ended_run(options.network, outcome, false)) == lab::AfterRun::kFail) {
    throw CommandError(behind);
  }
  if (!behind.empty() && !options.json && !options.quiet) {
    fmt::print(stderr, "spillway: {}\n", behind);
  }
  if (outcome.worst_exit_code() != kExitOk) {
    throw CommandExit{outcome.worst_exit_code()};
  }
}

}  // namespace spillway::cli
