// SPDX-License-Identifier: Apache-2.0
//
// `spillway lab up`: an emulated network in the background, for `lab exec`.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "cli/commands.h"
#include "cli/lab_options.h"
#include "cli/text_table.h"
#include "lab/launcher.h"

namespace spillway::cli {
namespace {

struct LabUpOptions {
  NetworkArguments network;
  std::string name;
};

void run(const LabUpOptions& options) {
  lab::LabOptions lab_options = lab_options_of(options.network);
  lab_options.name = options.name;
  const lab::StartedLab lab = value_or_throw(lab::start_lab(lab_options));
  TextTable table({"host", "address"});
  for (const lab::HostRecord& host : lab.hosts) {
    table.add_row({host.name, host.address});
  }
  fmt::print("lab {} is up\n{}", lab.record.name, table.to_string());
  if (lab.record.isolation == lab::Isolation::kNone) {
    fmt::print(stderr, "spillway: {}\n", lab::kLoopbackNotice);
  }
}

}  // namespace

void add_lab_up(CLI::App& lab) {
  const auto options = std::make_shared<LabUpOptions>();
  CLI::App* command = lab.add_subcommand("up", "An emulated network that stays, for lab exec");
  add_network_options(*command, options->network);
  command->add_option("--name", options->name, "What to call it; default: lab");
  command->footer(
      "Examples:\n"
      "  spillway lab up --preset incast\n"
      "  spillway lab exec host1 -- ping -c 3 10.77.0.1\n"
      "  spillway lab down");
  command->callback([options] { run(*options); });
}

}  // namespace spillway::cli
