// SPDX-License-Identifier: Apache-2.0
//
// `spillway fixup`, with the verbs `attach` and `detach`: corrects, at a receiver's interface, the
// length fields of packets that a switch cut without updating them.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <nlohmann/json.hpp>

#include "switch/kernel/host_fixup.h"
#include "tools/cli/commands.h"
#include "tools/cli/output.h"

namespace spillway::cli {
namespace {

void attach(const std::string& interface) {
  const kernel::FixupAttached attached = value_or_throw(kernel::attach_fixup(interface));
  if (!attached.in_driver) {
    fmt::print(stderr,
               "spillway: {}: its driver has no XDP; the fix-up runs in the kernel's general part, "
               "which costs more\n",
               interface);
  }
  fmt::print(
      "attached to {0}; `spillway fixup` counts what it fixes, `spillway fixup "
      "detach --interface {0}` ends it\n",
      interface);
}

void print_counters(bool as_json) {
  nlohmann::json all = nlohmann::json::array();
  TextTable table({"interface", "fixed", "refused", "passed"});
  for (const std::string& interface : kernel::fixed_up_interfaces()) {
    const kernel::FixupCounters counters = value_or_throw(kernel::fixup_counters(interface));
    all.push_back({{"interface", interface},
                   {"fixed", counters.fixed},
                   {"refused", counters.refused},
                   {"passed", counters.passed}});
    table.add_row({interface, std::to_string(counters.fixed), std::to_string(counters.refused),
                   std::to_string(counters.passed)});
  }
  fmt::print("{}", as_json ? all.dump(2) + "\n" : table.to_string());
}

void detach(const std::string& interface) {
  throw_unless_ok(kernel::detach_fixup(interface));
  fmt::print("detached from {}\n", interface);
}

void add_fixup_attach(CLI::App& noun) {
  const auto interface = std::make_shared<std::string>();
  CLI::App* command = noun.add_subcommand("attach", "Fix trimmed packets at an interface");
  command->add_option("--interface", *interface, "Interface at which they arrive")->required();
  command->footer(
      "Needed where `spillway doctor` finds stale lengths; takes CAP_BPF and CAP_NET_ADMIN.\n"
      "Example:\n  sudo spillway fixup attach --interface eth0");
  command->callback([interface] { attach(*interface); });
}

void add_fixup_detach(CLI::App& noun) {
  const auto interface = std::make_shared<std::string>();
  CLI::App* command = noun.add_subcommand("detach", "End the fix-up at an interface");
  command->add_option("--interface", *interface, "Interface to which it is attached")->required();
  command->footer("Example:\n  sudo spillway fixup detach --interface eth0");
  command->callback([interface] { detach(*interface); });
}

}  // namespace

void add_fixup(CLI::App& app) {
  CLI::App* noun = app.add_subcommand(
      "fixup", "Fixes, at a receiver, packets that a switch cut and left with stale lengths");
  noun->require_subcommand(0, 1);
  const auto as_json = std::make_shared<bool>(false);
  noun->add_flag("--json", *as_json, "Print JSON");
  noun->footer(
      "Without a verb it prints, for each interface, how many packets were fixed.\n"
      "Examples:\n"
      "  sudo spillway fixup attach --interface eth0\n"
      "  sudo spillway fixup --json");
  add_fixup_attach(*noun);
  add_fixup_detach(*noun);
  noun->callback([noun, as_json] {
    if (noun->get_subcommands().empty()) {
      print_counters(*as_json);
    }
  });
}

}  // namespace spillway::cli
