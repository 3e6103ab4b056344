// SPDX-License-Identifier: Apache-2.0
//
// `spillway switch run`: a fabric of trimming switches between real hosts, until it is told to
// stop. The fabric has a thread of its own; this one waits for signals and shows what happens.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/fabric_watch.h"
#include "cli/port_lines.h"
#include "fabric/fabric_thread.h"

namespace spillway::cli {
namespace {

struct SwitchRunOptions {
  std::string config;
  std::vector<std::string> overrides;
  WatchOptions watch;
};

void run(const SwitchRunOptions& options) {
  check_watch_options(options.watch);
  const EndSignals signals;
  const AttachedScenario attached = load_attached_scenario(options.config, options.overrides);
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

}  // namespace

void add_switch_run(CLI::App& noun) {
  const auto options = std::make_shared<SwitchRunOptions>();
  CLI::App* command = noun.add_subcommand(
      "run", "Switches in user space between real hosts, until SIGINT or SIGTERM");
  command
      ->add_option("config", options->config,
                   "A scenario with a `port` line per host (src/sim/scenario.h)")
      ->required();
  command
      ->add_option("--set", options->overrides,
                   "noun.key=value: change a line; noun.2.key=value: only the second of that noun")
      ->allow_extra_args(false);
  add_watch_options(*command, options->watch);
  command->footer(
      "Examples:\n"
      "  spillway switch run tests/scenarios/relay.scn\n"
      "  spillway switch run tests/scenarios/relay.scn --metrics 127.0.0.1:9400 --for 10s --json\n"
      "  sudo spillway switch run office.scn --set switch.queue=64k");
  command->callback([options] { run(*options); });
}

}  // namespace spillway::cli
