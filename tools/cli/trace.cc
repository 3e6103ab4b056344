// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>

#include "base/clock.h"
#include "base/units_text.h"
#include "lab/trace/packet_trace.h"
#include "lab/trace/trace_summary.h"
#include "switch/kernel/switch_events.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/cli/lab_command.h"
#include "tools/cli/lab_report.h"
#include "tools/cli/switch_watch.h"

namespace spillway::cli {
namespace {

// Options shared by all verbs of `trace`.

// A packet's sights and events take about 150 bytes each, its trace a kilobyte.
constexpr std::size_t kMaxPackets = 10'000'000;

void add_trace_options(CLI::App& verb, lab::TraceOptions& options) {
  options.path = "trace.json";
  verb.add_option("--out", options.path, "The file to write")->capture_default_str();
  verb.add_option("--packets", options.packets, "How many are kept, at most: the first")
      ->capture_default_str()
      ->check(whole_number(1, kMaxPackets));
}

// `spillway trace run`: like `lab run`, but follows every Spillway packet from sender to receiver.

struct TraceRunOptions {
  LabCommandOptions lab;
  lab::TraceOptions trace;
};

std::string summary_of(const TraceRunOptions& options, const lab::LabOutcome& outcome) {
  const bool in_kernel = outcome.dataplane == lab::Dataplane::kBpf;
  return lab_summary(outcome) + trace_table(outcome.trace.value_or(lab::TraceSummary()),
                                            in_kernel ? TimesOf::kSwitch : TimesOf::kFabric,
                                            options.trace.path);
}

void trace_lab(const TraceRunOptions& options) {
  const lab::LabOutcome outcome = run_lab_command(options.lab, options.trace);
  end_lab_command(options.lab, outcome, summary_of(options, outcome));
}

void add_trace_run(CLI::App& noun) {
  const auto options = std::make_shared<TraceRunOptions>();
  CLI::App* command = noun.add_subcommand(
      "run", "A command on every host of an emulated network, and every packet's way as a trace");
  add_trace_options(*command, options->trace);
  add_lab_command_options(*command, options->lab);
  command->footer(
      "With a switch in the kernel (--dataplane bpf, the default where it is possible) the trace "
      "shows what\nit decided about each packet; with a fabric in user space when packets left and "
      "arrived.\n"
      "Examples:\n"
      "  sudo spillway trace run --preset incast --out incast.json -- python3 train.py\n"
      "  spillway trace run --hosts 2 --rate 100mbit --loss 1% -- ./program");
  command->callback([options] { trace_lab(*options); });
}

// `spillway trace switch`: records a switch's decisions in the kernel for a while, as a trace. It
// sees nothing of the hosts: bars show decisions, not how long packets waited.

constexpr base::Duration kReadsEvery = base::milliseconds(5);

struct TraceSwitchOptions {
  std::string name = kDefaultSwitchName;
  std::string duration = "2s";
  bool json = false;
  lab::TraceOptions trace;
};

base::Duration length_of(const TraceSwitchOptions& options) {
  const base::Result<base::Duration> length = base::parse_duration(options.duration);
  if (!length.ok() || *length <= base::Duration()) {
    throw CLI::ValidationError(
        "--for", fmt::format("'{}' is not a time such as 500ms or 10s", options.duration));
  }
  return *length;
}

// Collects events until the time is over or a signal arrives.
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

void trace_switch(const TraceSwitchOptions& options) {
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
  command->callback([options] { trace_switch(*options); });
}

}  // namespace

void add_trace(CLI::App& app) {
  CLI::App* noun = app.add_subcommand("trace", "Follows single packets, as a Chrome trace");
  noun->require_subcommand(1);
  noun->footer("Example:\n  sudo spillway trace run --preset incast -- python3 train.py");
  add_trace_run(*noun);
  add_trace_switch(*noun);
}

}  // namespace spillway::cli
