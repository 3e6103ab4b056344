// SPDX-License-Identifier: Apache-2.0
#include "cli/lab_command.h"

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/lab_report.h"
#include "lab/launcher.h"

namespace spillway::cli {

void add_lab_command_options(CLI::App& verb, LabCommandArguments& arguments) {
  add_network_options(verb, arguments.network);
  verb.add_option("--grace", arguments.grace_seconds,
                  "Seconds the other ranks have to end when one fails")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86400.0));
  verb.add_flag("--json", arguments.json,
                "Print exit codes and the fabric's counters as JSON; ranks' output then goes to "
                "standard error");
  verb.add_flag("--quiet", arguments.quiet, "Print nothing but what the ranks print");
  verb.add_option("command", arguments.command, "Behind --: what every rank runs")->required();
}

lab::LabOutcome run_lab_command(const LabCommandArguments& arguments,
                                const lab::TraceOptions& trace) {
  lab::LabOptions options = lab_options_of(arguments.network);
  options.grace = base::nanoseconds(static_cast<std::int64_t>(arguments.grace_seconds * 1e9));
  options.trace = trace;
  if (arguments.json) {
    options.output.out = STDERR_FILENO;  // standard output holds the JSON and nothing else
  }
  const lab::HostPlan plan =
      value_or_throw(lab::make_host_plan(options.scenario, {.mtu = options.mtu}));
  const std::vector<lab::RankCommand> commands(plan.hosts.size(), {arguments.command, {}});
  return value_or_throw(lab::run_lab(options, commands));
}

void end_lab_command(const LabCommandArguments& arguments, const lab::LabOutcome& outcome,
                     const std::string& summary) {
  if (arguments.json) {
    fmt::print("{}\n", lab_outcome_json(outcome));
  } else if (!arguments.quiet) {
    fmt::print(stderr, "{}", summary);
  }
  if (outcome.worst_exit_code() != kExitOk) {
    throw CommandExit{outcome.worst_exit_code()};
  }
}

}  // namespace spillway::cli
