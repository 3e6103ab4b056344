// SPDX-License-Identifier: Apache-2.0
//
// What the verbs that run a command on every host of a lab share: their options, the run, and what
// they print of it. `lab run` is that alone; `trace run` follows the packets besides.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/lab_options.h"
#include "lab/lab_options.h"

namespace spillway::cli {

struct LabCommandArguments {
  NetworkArguments network;
  double grace_seconds = 10.0;
  bool json = false;
  bool quiet = false;
  std::vector<std::string> command;
};

void add_lab_command_options(CLI::App& verb, LabCommandArguments& arguments);

// From the network's making to its end. `trace` has no path: packets are not followed.
lab::LabOutcome run_lab_command(const LabCommandArguments& arguments,
                                const lab::TraceOptions& trace);

// Prints JSON or `summary` and, where a rank failed, throws CommandExit with the worst exit code.
void end_lab_command(const LabCommandArguments& arguments, const lab::LabOutcome& outcome,
                     const std::string& summary);

}  // namespace spillway::cli
