// SPDX-License-Identifier: Apache-2.0
//
// Verbs of `emulate` whose ranks may be hosts of a lab: the options that say so, and the command
// that this tool then starts itself with.
#pragma once

#include <CLI/CLI.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace spillway::cli {

struct EmulateLabOptions {
  std::string preset;              // empty: no lab
  std::vector<std::string> words;  // further ones, for `spillway lab run`
};

// `what`: the ranks do there.
void add_lab_options(CLI::App& command, EmulateLabOptions& options, const std::string& what);

// Where this tool is: in a lab it is found by no other name.
std::string own_program();

// `command` at every host.
std::vector<std::string> lab_command(const EmulateLabOptions& options, std::size_t hosts,
                                     const std::vector<std::string>& command);

}  // namespace spillway::cli
