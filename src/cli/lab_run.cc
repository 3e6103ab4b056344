// SPDX-License-Identifier: Apache-2.0
//
// `spillway lab run`: a command on every host of an emulated network, from the network's making to
// its end.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>

#include "cli/commands.h"
#include "cli/lab_options.h"
#include "cli/lab_report.h"
#include "lab/launcher.h"

namespace spillway::cli {
namespace {

struct Options {
  NetworkArguments network;
  double grace_seconds = 10.0;
  bool json = false;
  bool quiet = false;
  std::vector<std::string> command;
};

void run(const Options& options) {
  lab::LabOptions lab_options = lab_options_of(options.network);
  lab_options.grace = base::nanoseconds(static_cast<std::int64_t>(options.grace_seconds * 1e9));
  if (options.json) {
    lab_options.output.out = STDERR_FILENO;  // standard output holds the JSON and nothing else
  }
  const lab::HostPlan plan =
      value_or_throw(lab::make_host_plan(lab_options.scenario, {.mtu = lab_options.mtu}));
  const std::vector<lab::RankCommand> commands(plan.hosts.size(), {options.command, {}});
  const lab::LabOutcome outcome = value_or_throw(lab::run_lab(lab_options, commands));
  if (options.json) {
    fmt::print("{}\n", lab_outcome_json(outcome));
  } else if (!options.quiet) {
    fmt::print(stderr, "{}", lab_summary(outcome));
  }
  if (outcome.worst_exit_code() != kExitOk) {
    throw CommandExit{outcome.worst_exit_code()};
  }
}

}  // namespace

void add_lab_run(CLI::App& lab) {
  const auto options = std::make_shared<Options>();
  CLI::App* command =
      lab.add_subcommand("run", "A command on every host of an emulated network, until it ends");
  add_network_options(*command, options->network);
  command
      ->add_option("--grace", options->grace_seconds,
                   "Seconds the other ranks have to end when one fails")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86400.0));
  command->add_flag("--json", options->json,
                    "Print exit codes and the fabric's counters as JSON; ranks' output then goes "
                    "to standard error");
  command->add_flag("--quiet", options->quiet, "Print nothing but what the ranks print");
  command->add_option("command", options->command, "Behind --: what every rank runs")->required();
  command->footer(
      "Ranks find RANK, WORLD_SIZE, MASTER_ADDR, SPILLWAY_PEERS and more in their environment\n"
      "(src/lab/environment.h), as under torchrun. The exit code is that of the worst rank.\n"
      "Examples:\n"
      "  spillway lab run --hosts 2 --rate 100mbit -- ping -c 3 10.77.0.1\n"
      "  spillway lab run --preset incast -- python3 train.py\n"
      "  spillway lab run --preset clean --loss 1% --background \"from=host1 to=host0 "
      "protocol=udp rate=50%\" -- python3 train.py");
  command->callback([options] { run(*options); });
}

}  // namespace spillway::cli
