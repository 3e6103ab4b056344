// SPDX-License-Identifier: Apache-2.0
//
// `spillway switch stats`: what a switch in the kernel has counted, once or as it goes on.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "cli/commands.h"
#include "cli/fabric_report.h"
#include "cli/fabric_watch.h"
#include "cli/switch_name.h"
#include "kernel/kernel_switch.h"

namespace spillway::cli {
namespace {

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

}  // namespace

void add_switch_stats(CLI::App& noun) {
  const auto options = std::make_shared<StatsOptions>();
  CLI::App* command =
      noun.add_subcommand("stats", "What an attached switch has marked, trimmed and dropped");
  command->add_option("--name", options->name, "Of the switch")->capture_default_str();
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

}  // namespace spillway::cli
