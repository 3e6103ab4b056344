// SPDX-License-Identifier: Apache-2.0
//
// `spillway trace`: packet traces as Chrome traces. It runs a command in a lab, like `lab run`, and
// follows every packet from sender to receiver; or it records for a while what a switch in the
// kernel decides. The latter sees nothing of the hosts: bars show decisions, not how long packets
// waited.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>

#include "base/clock.h"
#include "base/text.h"
#include "lab/trace/packet_paths.h"
#include "lab/trace/packet_trace.h"
#include "switch/kernel/kernel_switch.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/cli/lab_command.h"
#include "tools/cli/switch_watch.h"

namespace spillway::cli {
namespace {

// A packet's sights and events take about 150 bytes each, its trace a kilobyte.
constexpr std::size_t kMaxPackets = 10'000'000;

struct TraceOptions {
  LabCommandOptions lab;  // its json counts for switches as well
  lab::TraceOptions trace;
  std::string switch_name;  // empty: a command in a lab
  std::string duration = "2s";
};

// ------------------------------------------------------------------ a command in a lab

std::string summary_of(const TraceOptions& options, const lab::LabOutcome& outcome) {
  const bool in_kernel = outcome.dataplane == lab::Dataplane::kBpf;
  return lab_summary(outcome) + trace_table(outcome.trace.value_or(lab::TraceSummary()),
                                            in_kernel ? TimesOf::kSwitch : TimesOf::kFabric,
                                            options.trace.path);
}

void trace_lab(const TraceOptions& options) {
  const lab::LabOutcome outcome = run_lab_command(options.lab, options.trace);
  end_lab_command(options.lab, outcome, summary_of(options, outcome));
}

// ------------------------------------------------------------------ a switch in the kernel

constexpr base::Duration kReadsEvery = base::milliseconds(5);

base::Duration length_of(const TraceOptions& options) {
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

void trace_switch(const TraceOptions& options) {
  const base::Duration length = length_of(options);
  const auto opened = value_or_throw(kernel::KernelSwitch::open(options.switch_name));
  const auto events = value_or_throw(kernel::SwitchEvents::open(*opened, options.trace.packets));
  lab::TraceFile file = value_or_throw(lab::TraceFile::create(options.trace.path));
  const lab::TraceSummary summary = value_or_throw(file.write(watch(*events, length)));
  if (options.lab.json) {
    fmt::print("{}\n", trace_json(summary).dump(2));
  } else {
    fmt::print("{}", trace_table(summary, TimesOf::kNothing, options.trace.path));
  }
}

void trace(const TraceOptions& options) {
  if (!options.switch_name.empty()) {
    trace_switch(options);
  } else if (!options.lab.command.empty()) {
    trace_lab(options);
  } else {
    throw CLI::RequiredError("a command behind --, or --switch");
  }
}

}  // namespace

void add_trace(CLI::App& app) {
  const auto options = std::make_shared<TraceOptions>();
  options->trace.path = "trace.json";
  CLI::App* command = app.add_subcommand(
      "trace", "Write a packet trace: every packet's path through a lab, or a switch's decisions");
  command->add_option("--out", options->trace.path, "The file to write, a Chrome trace")
      ->capture_default_str();
  command->add_option("--packets", options->trace.packets, "How many packets are kept, at most")
      ->capture_default_str()
      ->check(whole_number(1, kMaxPackets));
  CLI::Option* in_lab = add_lab_command_options(*command, options->lab)->required(false);
  CLI::Option* at_switch =
      command
          ->add_option("--switch", options->switch_name,
                       "Instead of a command in a lab: trace the attached switch of this name")
          ->excludes(in_lab);
  command
      ->add_option("--for", options->duration,
                   "With --switch: how long; SIGINT and SIGTERM end it earlier")
      ->capture_default_str()
      ->needs(at_switch);
  command->footer(
      "A command runs on every host of a lab, as with `spillway lab run`. With a switch in the\n"
      "kernel (--dataplane bpf, the default where it is possible) the trace shows what it decided\n"
      "about each packet; with a fabric in user space when packets left and arrived.\n"
      "With --switch, the switch must have been attached with --trace. One reader at a time.\n"
      "Examples:\n"
      "  sudo spillway trace --preset incast --out incast.json -- python3 train.py\n"
      "  spillway trace --hosts 2 --rate 100mbit --loss 1% -- ./program\n"
      "  sudo spillway trace --switch rack1 --for 2s --out rack1.json");
  command->callback([options] { trace(*options); });
}

}  // namespace spillway::cli
