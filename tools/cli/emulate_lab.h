// SPDX-License-Identifier: Apache-2.0
//
// For verbs of `emulate` whose ranks may be hosts of a lab: the lab's options, and the command with
// which this tool then starts itself.
#pragma once

#include <CLI/CLI.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace spillway::cli {

struct EmulateLabOptions {
  std::string preset;              // empty: no lab
  std::vector<std::string> words;  // further arguments for `spillway lab run`
};

// `what` begins the help text of --preset: what is done in the lab.
void add_lab_options(CLI::App& command, EmulateLabOptions& options, const std::string& what);

// Path of this tool; in a lab no other name is sure to find it.
std::string own_program();

// The `spillway lab run` command that runs `command` at every host.
std::vector<std::string> lab_command(const EmulateLabOptions& options, std::size_t hosts,
                                     const std::vector<std::string>& command);

}  // namespace spillway::cli
