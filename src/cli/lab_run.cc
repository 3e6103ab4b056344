// SPDX-License-Identifier: Apache-2.0
//
// `spillway lab run`: a command on every host of an emulated network, from the network's making to
// its end.
#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.h"
#include "cli/lab_command.h"
#include "cli/lab_report.h"

namespace spillway::cli {

void add_lab_run(CLI::App& lab) {
  const auto arguments = std::make_shared<LabCommandArguments>();
  CLI::App* command =
      lab.add_subcommand("run", "A command on every host of an emulated network, until it ends");
  add_lab_command_options(*command, *arguments);
  command->footer(
      "Ranks find RANK, WORLD_SIZE, MASTER_ADDR, SPILLWAY_PEERS and more in their environment\n"
      "(src/lab/environment.h), as under torchrun. The exit code is that of the worst rank.\n"
      "Examples:\n"
      "  spillway lab run --hosts 2 --rate 100mbit -- ping -c 3 10.77.0.1\n"
      "  spillway lab run --preset incast -- python3 train.py\n"
      "  spillway lab run --preset clean --loss 1% --background \"from=host1 to=host0 "
      "protocol=udp rate=50%\" -- python3 train.py");
  command->callback([arguments] {
    const lab::LabOutcome outcome = run_lab_command(*arguments, {});
    end_lab_command(*arguments, outcome, lab_summary(outcome));
  });
}

}  // namespace spillway::cli
