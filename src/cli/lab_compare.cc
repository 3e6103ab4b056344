// SPDX-License-Identifier: Apache-2.0
//
// `spillway lab compare`: one command over several transports on the same emulated network, as a
// table and as a page with plots.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>

#include "cli/commands.h"
#include "cli/compare_files.h"
#include "cli/compare_progress.h"
#include "cli/compare_table.h"
#include "cli/lab_options.h"
#include "compare/notes.h"
#include "compare/transport.h"
#include "compare/transport_run.h"
#include "sim/units_text.h"

namespace spillway::cli {
namespace {

constexpr std::size_t kShownLines = 12;  // of what a failed run printed

struct LabCompareArguments {
  NetworkArguments network;
  std::string transports = "tcp,spillway-exact,spillway";
  std::string target_accuracy;
  std::string out = "spillway-compare";
  double grace_seconds = 10.0;
  bool json = false;
  std::vector<std::string> command;
};

// What an option means, or wrong usage.
template <typename T>
T option_or_throw(const char* option, base::Result<T> parsed) {
  if (!parsed.ok()) {
    throw CLI::ValidationError(option, parsed.status().message());
  }
  return std::move(parsed).value();
}

lab::LabOptions lab_options_for(const LabCompareArguments& arguments) {
  NetworkArguments network = arguments.network;
  if (network.preset.empty() && network.scenario.empty()) {
    network.preset = "congested";
  }
  lab::LabOptions options = lab_options_of(network);
  options.grace = base::nanoseconds(static_cast<std::int64_t>(arguments.grace_seconds * 1e9));
  return options;
}

void say_if_all_runs_are_the_same(const LabCompareArguments& arguments, std::size_t runs) {
  if (runs > 1 && !compare::tells_transports_apart(arguments.command)) {
    fmt::print(stderr,
               "spillway: the command has no {{backend}} or {{transport}}: only SPILLWAY_MODE in "
               "its environment tells its runs apart\n");
  }
}

void tell_of_failure(const compare::RunRecord& run) {
  fmt::print(stderr, "spillway: over {} the command failed with exit code {}; the end of {}:\n{}",
             run.transport.name, run.outcome.worst_exit_code(), run.output_path,
             end_of_file(run.output_path, kShownLines));
}

// An interrupt ends the comparison: what is left of it would compare nothing.
void check_run(const compare::RunRecord& run, const CompareProgress& progress) {
  if (run.outcome.interrupted_by != 0) {
    throw CommandExit{run.outcome.worst_exit_code()};
  }
  if (run.outcome.worst_exit_code() != kExitOk) {
    progress.clear();
    tell_of_failure(run);
  }
}

std::vector<compare::RunRecord> run_all(const std::vector<compare::Transport>& transports,
                                        compare::RunTask task) {
  CompareProgress progress(transports.size());
  task.on_progress = [&progress](const compare::RunProgress& run) { progress.show(run); };
  std::vector<compare::RunRecord> runs;
  for (const compare::Transport& transport : transports) {
    progress.begin_run();
    runs.push_back(value_or_throw(compare::run_transport(task, transport)));
    check_run(runs.back(), progress);
  }
  return runs;
}

void print(const LabCompareArguments& arguments, const compare::Comparison& comparison,
           const CompareReport& report) {
  if (arguments.json) {
    fmt::print("{}\n", report.json);
    return;
  }
  fmt::print("{}", compare_table(comparison).to_string());
  for (const std::string& note : compare::notes_of(comparison)) {
    fmt::print("Note: {}\n", note);
  }
  fmt::print("Page: {}\n", report.page.string());
}

void run(const LabCompareArguments& arguments) {
  compare::Comparison comparison;
  if (!arguments.target_accuracy.empty()) {
    comparison.wanted_accuracy =
        option_or_throw("--target-accuracy", sim::parse_fraction(arguments.target_accuracy));
  }
  const auto transports =
      option_or_throw("--transports", compare::parse_transports(arguments.transports));
  const lab::LabOptions options = lab_options_for(arguments);
  const std::filesystem::path folder = compare_folder(arguments.out);
  say_if_all_runs_are_the_same(arguments, transports.size());
  comparison.command = arguments.command;
  comparison.runs = run_all(transports, {options, arguments.command, folder, {}});
  print(arguments, comparison,
        write_compare_report(folder, comparison, compare::network_facts(options)));
  int worst = kExitOk;
  for (const compare::RunRecord& record : comparison.runs) {
    worst = std::max(worst, record.outcome.worst_exit_code());
  }
  if (worst != kExitOk) {
    throw CommandExit{worst};
  }
}

constexpr const char* kFooter =
    "COMMAND runs on every host, once per transport: tcp, spillway-exact, spillway. In its words\n"
    "  {backend}    becomes gloo, spillway, spillway: what init_process_group() is given\n"
    "  {transport}  becomes the transport's name\n"
    "  {log}        becomes a file to which rank 0 may write its progress, a JSON object a line:\n"
    "    {\"event\":\"step\",\"step\":7,\"seconds\":1.25,\"step_ms\":80.5,\"loss\":0.7}\n"
    "    {\"event\":\"evaluation\",\"step\":50,\"seconds\":9.5,\"accuracy\":0.81}\n"
    "    {\"event\":\"end\"}\n"
    "SPILLWAY_MODE is exact for spillway-exact and tolerant for spillway; PYTHONPATH and\n"
    "SPILLWAY_LIBRARY lead to the package of this tool unless they are set. What ranks print goes\n"
    "to OUT/TRANSPORT.txt. The exit code is that of the worst rank of all runs.\n"
    "Examples:\n"
    "  spillway lab compare -- python3 train.py --backend {backend} --log {log}\n"
    "  spillway lab compare --preset incast --transports tcp,spillway --target-accuracy 85% \\\n"
    "      --out incast -- python3 train.py --backend {backend} --log {log}\n"
    "  spillway lab compare --preset clean --loss 1% --json -- ./run.sh {transport}";

}  // namespace

void add_lab_compare(CLI::App& lab) {
  const auto arguments = std::make_shared<LabCompareArguments>();
  CLI::App* verb = lab.add_subcommand(
      "compare", "One command over TCP and over Spillway, on the same emulated network");
  verb->add_option("--transports", arguments->transports,
                   "Which, the first to compare the others with")
      ->capture_default_str();
  verb->add_option("--target-accuracy", arguments->target_accuracy,
                   "Time to it is compared: 85% or 0.85; default: what all runs reached");
  verb->add_option("--out", arguments->out, "Folder for report.html, report.json, logs and output")
      ->capture_default_str();
  verb->add_flag("--json", arguments->json, "Print JSON instead of a table");
  add_network_options(*verb, arguments->network);
  verb->add_option("--grace", arguments->grace_seconds,
                   "Seconds the other ranks have to end when one fails")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86400.0));
  verb->add_option("command", arguments->command, "Behind --: what every rank runs")->required();
  verb->footer(kFooter);
  verb->callback([arguments] { run(*arguments); });
}

}  // namespace spillway::cli
