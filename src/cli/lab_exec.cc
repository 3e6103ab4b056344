// SPDX-License-Identifier: Apache-2.0
//
// `spillway lab exec`: a command on one host of a running lab, with this terminal, or on all of
// them at once, with their output marked.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "cli/commands.h"
#include "cli/lab_selection.h"
#include "lab/enter.h"

namespace spillway::cli {
namespace {

struct LabExecOptions {
  std::string name;
  std::string host;
  std::vector<std::string> command;
};

std::vector<lab::HostRecord> chosen_hosts(const std::vector<lab::HostRecord>& hosts,
                                          const std::string& wanted) {
  if (wanted == "all") {
    return hosts;
  }
  std::string names;
  for (const lab::HostRecord& host : hosts) {
    if (host.name == wanted) {
      return {host};
    }
    names += host.name + ", ";
  }
  throw CommandError(fmt::format("no host named '{}'; there are {}all", wanted, names));
}

void run(const LabExecOptions& options) {
  const lab::LabRecord lab = select_lab(options.name);
  const std::vector<lab::HostRecord> hosts =
      chosen_hosts(value_or_throw(lab::hosts_of(lab::default_state_root(), lab)), options.host);
  const int code =
      value_or_throw(lab::run_inside(lab, hosts, options.command, options.host != "all"));
  if (code != kExitOk) {
    throw CommandExit{code};
  }
}

}  // namespace

void add_lab_exec(CLI::App& lab) {
  const auto options = std::make_shared<LabExecOptions>();
  CLI::App* command = lab.add_subcommand("exec", "A command inside a running lab");
  command->add_option("--name", options->name, "Which lab; default: the only one");
  command->add_option("host", options->host, "Host to run on, or all")->required();
  command->add_option("command", options->command, "Behind --: what to run")->required();
  command->footer(
      "The exit code is the command's; of all hosts, the worst.\n"
      "Examples:\n"
      "  spillway lab exec host1 -- ping -c 3 10.77.0.1\n"
      "  spillway lab exec all -- ip -brief address");
  command->callback([options] { run(*options); });
}

}  // namespace spillway::cli
