// SPDX-License-Identifier: Apache-2.0
//
// `spillway switch detach`: ends a switch in the kernel.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "cli/commands.h"
#include "cli/switch_name.h"
#include "kernel/kernel_switch.h"

namespace spillway::cli {
namespace {

void detach_switch(const std::string& name) {
  throw_unless_ok(kernel::KernelSwitch::detach(name));
  fmt::print("detached {}\n", name);
}

}  // namespace

void add_switch_detach(CLI::App& noun) {
  const auto name = std::make_shared<std::string>(kDefaultSwitchName);
  CLI::App* command = noun.add_subcommand("detach", "Ends an attached switch");
  command->add_option("--name", *name, "Of the switch")->capture_default_str();
  command->footer("Example:\n  sudo spillway switch detach --name rack1");
  command->callback([name] { detach_switch(*name); });
}

}  // namespace spillway::cli
