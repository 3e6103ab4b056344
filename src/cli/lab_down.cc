// SPDX-License-Identifier: Apache-2.0
//
// `spillway lab down`: ends labs, with everything that runs in them.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "cli/commands.h"
#include "cli/lab_selection.h"

namespace spillway::cli {
namespace {

struct LabDownOptions {
  std::string name;
  bool all = false;
};

void end(const lab::LabRecord& lab) {
  if (const base::Status status = lab::end_lab(lab::default_state_root(), lab); !status.ok()) {
    throw CommandError(status);
  }
  fmt::print("lab {} is down\n", lab.name);
}

void run(const LabDownOptions& options) {
  if (!options.all) {
    end(select_lab(options.name));
    return;
  }
  for (const lab::LabRecord& lab : value_or_throw(lab::live_labs(lab::default_state_root()))) {
    end(lab);
  }
}

}  // namespace

void add_lab_down(CLI::App& lab) {
  const auto options = std::make_shared<LabDownOptions>();
  CLI::App* command = lab.add_subcommand("down", "Ends a lab and everything in it");
  CLI::Option* name = command->add_option("--name", options->name, "Which; default: the only one");
  command->add_flag("--all", options->all, "All labs of this user")->excludes(name);
  command->footer("Examples:\n  spillway lab down\n  spillway lab down --all");
  command->callback([options] { run(*options); });
}

}  // namespace spillway::cli
