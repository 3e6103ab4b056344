// SPDX-License-Identifier: Apache-2.0
//
// `spillway switch attach`: the switch in the kernel. It needs no process once it is attached, so
// this does its work and ends.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "cli/commands.h"
#include "cli/port_lines.h"
#include "cli/switch_name.h"
#include "kernel/kernel_switch.h"
#include "kernel/switch_plan.h"

namespace spillway::cli {
namespace {

struct AttachOptions {
  std::string config;
  std::vector<std::string> overrides;
  std::string name = kDefaultSwitchName;
  std::string hook = "xdp";
  std::string others = "pass";
  bool forwards = false;
  bool traces = false;
};

kernel::Hook hook_of(const AttachOptions& options) {
  if (options.hook == "xdp") {
    return kernel::Hook::kXdp;
  }
  return options.forwards ? kernel::Hook::kTcBoth : kernel::Hook::kTc;
}

void attach(const AttachOptions& options) {
  const AttachedScenario attached = load_attached_scenario(options.config, options.overrides);
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
  command.add_option("--name", options.name, "By which stats and detach find it")
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
}

}  // namespace

void add_switch_attach(CLI::App& noun) {
  const auto options = std::make_shared<AttachOptions>();
  CLI::App* command =
      noun.add_subcommand("attach", "Makes interfaces of this machine a trimming switch (eBPF)");
  add_attach_options(*command, *options);
  command->footer(
      "Needs CAP_BPF and CAP_NET_ADMIN, and Linux 5.15. Either all ports are attached or none.\n"
      "Examples:\n"
      "  sudo spillway switch attach --config rack.scn\n"
      "  sudo spillway switch attach --config rack.scn --hook tc --others queue --name rack1");
  command->callback([options] { attach(*options); });
}

}  // namespace spillway::cli
