// SPDX-License-Identifier: Apache-2.0
//
// `spillway trace switch`: what a switch in the kernel decides about packets, for a while, as a
// trace. It sees nothing of the hosts: bars say what was decided, not how long packets waited.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/fabric_watch.h"
#include "cli/switch_name.h"
#include "cli/trace_options.h"
#include "cli/trace_report.h"
#include "kernel/switch_events.h"
#include "lab/trace_file.h"
#include "sim/units_text.h"

namespace spillway::cli {
namespace {

constexpr base::Duration kReadsEvery = base::milliseconds(5);

struct TraceSwitchOptions {
  std::string name = kDefaultSwitchName;
  std::string duration = "2s";
  bool json = false;
  lab::TraceOptions trace;
};

base::Duration length_of(const TraceSwitchOptions& options) {
  const base::Result<base::Duration> length = sim::parse_duration(options.duration);
  if (!length.ok() || *length <= base::Duration()) {
    throw CLI::ValidationError(
        "--for", fmt::format("'{}' is not a time such as 500ms or 10s", options.duration));
  }
  return *length;
}

// Until the time is over or a signal comes.
lab::PacketLog watch(kernel::SwitchEvents& events, base::Duration length) {
  const EndSignals signals;
  const base::MonotonicClock clock;
  const base::Instant end = clock.now() + length;
  while (clock.now() < end && !signals.wait(std::min(kReadsEvery, end - clock.now()))) {
    events.read();
  }
  events.read();
  lab::PacketLog log;
  log.ports = events.ports();
  log.events = events.take();
  log.left_out = events.left_out();
  return log;
}

void run(const TraceSwitchOptions& options) {
  const base::Duration length = length_of(options);
  const auto opened = value_or_throw(kernel::KernelSwitch::open(options.name));
  const auto events = value_or_throw(kernel::SwitchEvents::open(*opened, options.trace.packets));
  lab::TraceFile file = value_or_throw(lab::TraceFile::create(options.trace.path));
  const lab::TraceSummary summary = value_or_throw(file.write(watch(*events, length)));
  if (options.json) {
    fmt::print("{}\n", trace_json(summary).dump(2));
  } else {
    fmt::print("{}", trace_table(summary, TimesOf::kNothing, options.trace.path));
  }
}

}  // namespace

void add_trace_switch(CLI::App& noun) {
  const auto options = std::make_shared<TraceSwitchOptions>();
  CLI::App* command =
      noun.add_subcommand("switch", "What an attached switch decides about packets, for a while");
  command->add_option("--name", options->name, "Of the switch")->capture_default_str();
  command->add_option("--for", options->duration, "How long; SIGINT and SIGTERM end it earlier")
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print the numbers of packets as JSON");
  add_trace_options(*command, options->trace);
  command->footer(
      "The switch must have been attached with --trace. One reader at a time.\n"
      "Example:\n"
      "  sudo spillway trace switch --name rack1 --for 2s --out rack1.json");
  command->callback([options] { run(*options); });
}

}  // namespace spillway::cli
