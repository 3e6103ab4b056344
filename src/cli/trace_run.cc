// SPDX-License-Identifier: Apache-2.0
//
// `spillway trace run`: what `lab run` does, with every Spillway packet followed from sender to
// receiver.
#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.h"
#include "cli/lab_command.h"
#include "cli/lab_report.h"
#include "cli/trace_options.h"
#include "cli/trace_report.h"

namespace spillway::cli {
namespace {

struct TraceRunOptions {
  LabCommandArguments lab;
  lab::TraceOptions trace;
};

std::string summary_of(const TraceRunOptions& options, const lab::LabOutcome& outcome) {
  const bool in_kernel = outcome.dataplane == lab::Dataplane::kBpf;
  return lab_summary(outcome) + trace_table(outcome.trace.value_or(lab::TraceSummary()),
                                            in_kernel ? TimesOf::kSwitch : TimesOf::kFabric,
                                            options.trace.path);
}

void run(const TraceRunOptions& options) {
  const lab::LabOutcome outcome = run_lab_command(options.lab, options.trace);
  end_lab_command(options.lab, outcome, summary_of(options, outcome));
}

}  // namespace

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
  command->callback([options] { run(*options); });
}

}  // namespace spillway::cli
