// SPDX-License-Identifier: Apache-2.0
//
// `spillway switch run`, `attach`, `stats` and `detach`: trimming switches on this machine, in user
// space or in the kernel.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "sim/scenario/scenario.h"
#include "switch/fabric/emulator.h"
#include "switch/kernel/kernel_switch.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/cli/fabric_report.h"
#include "tools/cli/switch_watch.h"

namespace spillway::cli {
namespace {

// ------------------------------------------------------------------ options for adding sums

// Options of `spillway switch attach` and `run` for adding sums: they replace or complement the
// scenario's `aggregate` lines.

struct SumOptions {
  std::string slots;  // text of the option; empty: not given
  std::string policy;
  std::string level;
  std::vector<std::string> limits;  // "JOB=SLOTS"
};

void give(const char* key, const std::string& value, scenario::Directive& directive) {
  if (!value.empty()) {
    directive.values.push_back({key, value});
  }
}

std::string check_limit(const std::string& text) {
  const std::size_t at = text.find('=');
  const bool is_good = at != std::string::npos &&
                       whole_number(0, UINT16_MAX)(text.substr(0, at)).empty() &&
                       whole_number(1, SPILLWAY_SUM_MAX_SLOTS)(text.substr(at + 1)).empty();
  return is_good ? ""
                 : fmt::format(
                       "'{}' is not JOB=SLOTS, such as 7=1024, with a job from 0 to {} and "
                       "1 to {} slots",
                       text, UINT16_MAX, SPILLWAY_SUM_MAX_SLOTS);
}

// Converts "1=64" and "2=32" to the scenario's form: "1:64,2:32".
std::string limits_text(const std::vector<std::string>& limits) {
  std::string text;
  for (const std::string& limit : limits) {
    text += (text.empty() ? "" : ",") + limit;
  }
  std::ranges::replace(text, '=', ':');
  return text;
}

// "--slots, --job-limit": the options given.
std::string given_options(const SumOptions& options) {
  std::vector<std::string_view> names;
  for (const auto& [name, is_given] : {std::pair("--slots", !options.slots.empty()),
                                       std::pair("--policy", !options.policy.empty()),
                                       std::pair("--level", !options.level.empty()),
                                       std::pair("--job-limit", !options.limits.empty())}) {
    if (is_given) {
      names.emplace_back(name);
    }
  }
  return scenario::joined(names);
}

void add_sum_options(CLI::App& command, SumOptions& options) {
  command
      .add_option("--slots", options.slots,
                  "Add sum packets up (algorithm `switch`), so many chunks at a time")
      ->check(whole_number(1, SPILLWAY_SUM_MAX_SLOTS));
  command
      .add_option("--policy", options.policy,
                  "Owner of a slot: preemptive (the more urgent takes it), first-come, or static")
      ->check(CLI::IsMember({"preemptive", "first-come", "static"}));
  command
      .add_option("--level", options.level,
                  "0: adds what ranks send, 1: what switches of level 0 have added")
      ->check(whole_number(0, SPILLWAY_SUM_LEVELS - 1));
  command
      .add_option("--job-limit", options.limits, "JOB=SLOTS: how many slots a job may hold at most")
      ->allow_extra_args(false)
      ->check(CLI::Validator([](const std::string& text) { return check_limit(text); }, ""));
}

// Throws if the options are inconsistent.
void apply_sum_options(const SumOptions& options, scenario::Scenario& scenario) {
  scenario::Directive given{.noun = "aggregate", .place = "the command line", .values = {}};
  give("slots", options.slots, given);
  give("policy", options.policy, given);
  give("level", options.level, given);
  give("limits", limits_text(options.limits), given);
  if (given.values.empty()) {
    return;
  }
  if (scenario.aggregations.empty()) {
    scenario.aggregations.emplace_back();
  }
  for (scenario::Aggregation& line : scenario.aggregations) {
    if (!options.limits.empty()) {
      line.limits.clear();
    }
    check_option(given_options(options), scenario::read_aggregation(given, line));
  }
}

// ------------------------------------------------------------------ the commands

// `spillway switch attach`: attaches the switch in the kernel and exits; an attached switch needs
// no process.

struct AttachOptions {
  std::string config;
  std::vector<std::string> overrides;
  std::string name = kDefaultSwitchName;
  std::string hook = "xdp";
  std::string others = "pass";
  bool forwards = false;
  bool traces = false;
  SumOptions sums;
};

kernel::Hook hook_of(const AttachOptions& options) {
  if (options.hook == "xdp") {
    return kernel::Hook::kXdp;
  }
  return options.forwards ? kernel::Hook::kTcBoth : kernel::Hook::kTc;
}

void attach(const AttachOptions& options) {
  AttachedScenario attached = load_attached_scenario(options.config, options.overrides);
  apply_sum_options(options.sums, attached.scenario);
  const base::Result<kernel::SwitchPlan> plan =
      kernel::plan_switch(attached.scenario, attached.ports);
  if (!plan.ok()) {
    throw CommandError(fmt::format("{}: {}", options.config, plan.status().message()));
  }
  kernel::SwitchOptions switch_options;
  switch_options.hook = hook_of(options);
  switch_options.queues_others = options.others == "queue";
  switch_options.traces = options.traces;
  switch_options.name = options.name;
  const auto made = value_or_throw(kernel::KernelSwitch::attach(*plan, switch_options));
  for (const std::string& notice : made->notices()) {
    fmt::print(stderr, "spillway: {}\n", notice);
  }
  for (const kernel::PlannedPort& port : plan->ports) {
    fmt::print("{} is {}\n", port.interface, port.name);
  }
  fmt::print(
      "attached; `spillway switch stats --name {0}` shows what it does, "
      "`spillway switch detach --name {0}` ends it\n",
      options.name);
}

void add_attach_options(CLI::App& command, AttachOptions& options) {
  command
      .add_option("--config", options.config,
                  "A scenario of one switch with a `port host= interface=` line per host")
      ->required();
  command
      .add_option("--set", options.overrides,
                  "noun.key=value: change a line; noun.2.key=value: only the second of that noun")
      ->allow_extra_args(false);
  command.add_option("--name", options.name, "Name by which stats and detach find it")
      ->capture_default_str();
  command
      .add_option("--hook", options.hook,
                  "xdp: forwards in the driver, what it does not know goes up to the kernel's "
                  "bridge; tc: decides on the way out, the kernel forwards")
      ->capture_default_str()
      ->check(CLI::IsMember({"xdp", "tc"}));
  command.add_flag("--forward", options.forwards, "With --hook tc: forward between the ports too");
  command
      .add_option("--others", options.others,
                  "Frames that are not Spillway's: pass (left alone) or queue (share the queues)")
      ->capture_default_str()
      ->check(CLI::IsMember({"pass", "queue"}));
  command.add_flag("--trace", options.traces, "Tell of every packet, for `spillway trace`");
  add_sum_options(command, options.sums);
}

void add_switch_attach(CLI::App& noun) {
  const auto options = std::make_shared<AttachOptions>();
  CLI::App* command =
      noun.add_subcommand("attach", "Makes interfaces of this machine a trimming switch (eBPF)");
  add_attach_options(*command, *options);
  command->footer(
      "Needs CAP_BPF and CAP_NET_ADMIN, and Linux 5.15 (5.17 with --slots). Either all ports are\n"
      "attached or none.\n"
      "Examples:\n"
      "  sudo spillway switch attach --config rack.scn\n"
      "  sudo spillway switch attach --config rack.scn --hook tc --others queue --name rack1\n"
      "  sudo spillway switch attach --config rack.scn --slots 4096 --job-limit 7=1024");
  command->callback([options] { attach(*options); });
}

// `spillway switch detach`: ends a switch in the kernel.

void detach_switch(const std::string& name) {
  throw_unless_ok(kernel::KernelSwitch::detach(name));
  fmt::print("detached {}\n", name);
}

void add_switch_detach(CLI::App& noun) {
  const auto name = std::make_shared<std::string>(kDefaultSwitchName);
  CLI::App* command = noun.add_subcommand("detach", "Ends an attached switch");
  command->add_option("--name", *name, "Name of the switch")->capture_default_str();
  command->footer("Example:\n  sudo spillway switch detach --name rack1");
  command->callback([name] { detach_switch(*name); });
}

// `spillway switch run`: runs a fabric of trimming switches between real hosts until stopped. The
// fabric has a thread of its own; this one waits for signals and displays statistics.

struct SwitchRunOptions {
  std::string config;
  std::vector<std::string> overrides;
  SumOptions sums;
  WatchOptions watch;
};

void run(const SwitchRunOptions& options) {
  check_watch_options(options.watch);
  const EndSignals signals;
  AttachedScenario attached = load_attached_scenario(options.config, options.overrides);
  apply_sum_options(options.sums, attached.scenario);
  base::Result<std::unique_ptr<fabric::FabricThread>> made =
      fabric::FabricThread::make(attached.scenario, attached.ports);
  if (!made.ok()) {
    throw CommandError(fmt::format("{}: {}", options.config, made.status().message()));
  }
  const std::unique_ptr<fabric::FabricThread> fabric = std::move(made).value();
  const base::Instant start = base::MonotonicClock().now();
  watch_fabric(options.watch, signals, [&fabric] { return fabric->snapshot(); });
  throw_unless_ok(fabric->finish());
  print_fabric(options.watch, fabric->snapshot(), base::MonotonicClock().now() - start);
}

void add_switch_run(CLI::App& noun) {
  const auto options = std::make_shared<SwitchRunOptions>();
  CLI::App* command = noun.add_subcommand(
      "run", "Switches in user space between real hosts, until SIGINT or SIGTERM");
  command
      ->add_option("config", options->config,
                   "A scenario with a `port` line per host (sim/scenario/scenario.h)")
      ->required();
  command
      ->add_option("--set", options->overrides,
                   "noun.key=value: change a line; noun.2.key=value: only the second of that noun")
      ->allow_extra_args(false);
  add_sum_options(*command, options->sums);
  add_watch_options(*command, options->watch);
  command->footer(
      "Examples:\n"
      "  spillway switch run tests/scenarios/relay.scn\n"
      "  spillway switch run tests/scenarios/relay.scn --metrics 127.0.0.1:9400 --for 10s --json\n"
      "  sudo spillway switch run office.scn --set switch.queue=64k");
  command->callback([options] { run(*options); });
}

// `spillway switch stats`: prints the counters of a switch in the kernel, once or continuously.

struct StatsOptions {
  std::string name = kDefaultSwitchName;
  bool watches = false;
  bool as_metrics = false;
  WatchOptions watch;
};

void stats(const StatsOptions& options) {
  check_watch_options(options.watch);
  const EndSignals signals;
  const auto opened = value_or_throw(kernel::KernelSwitch::open(options.name));
  const auto snapshot = [&opened] { return opened->snapshot(); };
  if (options.as_metrics) {
    fmt::print("{}", fabric_metrics(snapshot()));
    return;
  }
  if (options.watches || !options.watch.metrics.empty()) {
    watch_fabric(options.watch, signals, snapshot);
  }
  print_fabric(options.watch, snapshot(), base::Duration());
}

void add_switch_stats(CLI::App& noun) {
  const auto options = std::make_shared<StatsOptions>();
  CLI::App* command = noun.add_subcommand("stats", "Marks, trims and drops of an attached switch");
  command->add_option("--name", options->name, "Name of the switch")->capture_default_str();
  command->add_flag("--watch", options->watches, "Until SIGINT or SIGTERM");
  command->add_flag("--prometheus", options->as_metrics, "Print Prometheus' text and end");
  add_watch_options(*command, options->watch);
  command->footer(
      "Examples:\n"
      "  sudo spillway switch stats\n"
      "  sudo spillway switch stats --watch --metrics 127.0.0.1:9400\n"
      "  sudo spillway switch stats --prometheus > node_exporter/spillway.prom");
  command->callback([options] { stats(*options); });
}

}  // namespace

void add_switch(CLI::App& app) {
  CLI::App* noun = app.add_subcommand("switch", "A trimming switch on this machine");
  noun->require_subcommand(1);
  noun->footer("Example:\n  spillway switch run tests/scenarios/relay.scn");
  add_switch_attach(*noun);
  add_switch_detach(*noun);
  add_switch_run(*noun);
  add_switch_stats(*noun);
}

}  // namespace spillway::cli
