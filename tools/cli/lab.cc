// SPDX-License-Identifier: Apache-2.0
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <ctime>
#include <memory>
#include <string>

#include "lab/calibration.h"
#include "lab/launcher.h"
#include "lab/presets.h"
#include "lab/state_directory.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/cli/lab_command.h"
#include "tools/cli/output.h"

namespace spillway::cli {
namespace {

// The running lab with this name; an empty name means the only one. Throws CommandError with the
// names of running labs.
lab::LabRecord select_lab(const std::string& name) {
  const std::vector<lab::LabRecord> labs =
      value_or_throw(lab::live_labs(lab::default_state_root()));
  if (labs.empty()) {
    throw CommandError("no lab is running: start one with 'spillway lab up'");
  }
  std::string names;
  for (const lab::LabRecord& lab : labs) {
    if (lab.name == name || (name.empty() && labs.size() == 1)) {
      return lab;
    }
    names += fmt::format("{}{}", names.empty() ? "" : ", ", lab.name);
  }
  throw CommandError(
      name.empty() ? fmt::format("several labs are running: give --name, one of {}", names)
                   : fmt::format("no lab named '{}' is running; running are {}", name, names));
}

// `spillway lab presets`: the built-in networks and their texts.

void show_presets(const std::string& name) {
  if (!name.empty()) {
    fmt::print("{}", parsed("preset", lab::find_preset(name)).text);
    return;
  }
  for (const lab::Preset& preset : lab::presets()) {
    fmt::print("{:<16}{}\n{:<16}Stands for: {}\n", preset.name, preset.summary(), "",
               preset.stands_for());
  }
}

void add_lab_presets(CLI::App& lab) {
  const auto name = std::make_shared<std::string>();
  CLI::App* command = lab.add_subcommand("presets", "Networks by name, or the text of one");
  command->add_option("preset", *name, "Print this one, as a scenario to start from");
  command->footer("Examples:\n  spillway lab presets\n  spillway lab presets incast > mine.scn");
  command->callback([name] { show_presets(*name); });
}

// `spillway lab load`: run by ranks while the lab tests whether it keeps up (lab/calibration.h).
// Internal, and hidden from the help.
void add_lab_load(CLI::App& lab) {
  const auto options = std::make_shared<lab::LoadOptions>();
  const auto rate = std::make_shared<std::int64_t>(0);
  CLI::App* command = lab.add_subcommand("load", "The load of a trial")->group("");
  command->add_option("--rate", *rate, "Bits per second")->required();
  command->add_option("--mtu", options->mtu, "MTU of the interface")->required();
  command->add_option("--peers", options->peers)->envname("SPILLWAY_PEERS")->required();
  command->add_option("--rank", options->rank)->envname("RANK")->required();
  command->callback([options, rate] {
    options->rate = base::bits_per_second(*rate);
    throw_unless_ok(lab::run_load(*options));
  });
}

// `spillway lab run`: makes an emulated network, runs a command on every host, and removes it.
void add_lab_run(CLI::App& lab) {
  const auto options = std::make_shared<LabCommandOptions>();
  CLI::App* command =
      lab.add_subcommand("run", "A command on every host of an emulated network, until it ends");
  add_lab_command_options(*command, *options);
  command->footer(
      "Ranks find RANK, WORLD_SIZE, MASTER_ADDR, SPILLWAY_PEERS and more in their environment\n"
      "(docs/lab.md), as under torchrun. The exit code is that of the worst rank.\n"
      "Examples:\n"
      "  spillway lab run --hosts 2 --rate 100mbit -- ping -c 3 10.77.0.1\n"
      "  spillway lab run --preset incast -- python3 train.py\n"
      "  spillway lab run --preset clean --loss 1% --background \"from=host1 to=host0 "
      "protocol=udp rate=50%\" -- python3 train.py");
  command->callback([options] {
    const lab::LabOutcome outcome = run_lab_command(*options, {});
    end_lab_command(*options, outcome, lab_summary(outcome));
  });
}

// `spillway lab up`: keeps an emulated network in the background, for `lab exec`.

struct LabUpOptions {
  NetworkOptions network;
  std::string name;
};

void bring_up(const LabUpOptions& options) {
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

void add_lab_up(CLI::App& lab) {
  const auto options = std::make_shared<LabUpOptions>();
  CLI::App* command = lab.add_subcommand("up", "An emulated network that stays, for lab exec");
  add_network_options(*command, options->network);
  command->add_option("--name", options->name, "Name of the lab; default: lab");
  command->footer(
      "Examples:\n"
      "  spillway lab up --preset incast\n"
      "  spillway lab exec host1 -- ping -c 3 10.77.0.1\n"
      "  spillway lab down");
  command->callback([options] { bring_up(*options); });
}

// `spillway lab exec`: runs a command on one host of a running lab, with this terminal, or on all
// hosts at once, with their output labelled.

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

void execute(const LabExecOptions& options) {
  const lab::LabRecord lab = select_lab(options.name);
  const std::vector<lab::HostRecord> hosts =
      chosen_hosts(value_or_throw(lab::hosts_of(lab::default_state_root(), lab)), options.host);
  const int code =
      value_or_throw(lab::run_inside(lab, hosts, options.command, options.host != "all"));
  if (code != kExitOk) {
    throw CommandExit{code};
  }
}

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
  command->callback([options] { execute(*options); });
}

// `spillway lab ls`: lists running labs, and removes what dead ones left behind.

std::string since_text(std::int64_t seconds) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(static_cast<std::time_t>(seconds)));
}

void print_json(const std::vector<lab::LabRecord>& labs) {
  nlohmann::json out = nlohmann::json::array();
  for (const lab::LabRecord& lab : labs) {
    out.push_back({{"name", lab.name},
                   {"hosts", lab.hosts},
                   {"rate_bps", lab.rate},
                   {"isolation", std::string(lab::isolation_name(lab.isolation))},
                   {"since", lab.since},
                   {"pid", lab.supervisor}});
  }
  fmt::print("{}\n", out.dump(2));
}

void list_labs(bool json) {
  const std::vector<lab::LabRecord> labs =
      value_or_throw(lab::live_labs(lab::default_state_root()));
  if (json) {
    print_json(labs);
    return;
  }
  TextTable table({"name", "hosts", "Mbit/s", "isolation", "since", "pid"});
  for (const lab::LabRecord& lab : labs) {
    table.add_row({lab.name, std::to_string(lab.hosts), std::to_string(lab.rate / 1'000'000),
                   std::string(lab::isolation_name(lab.isolation)), since_text(lab.since),
                   std::to_string(lab.supervisor)});
  }
  fmt::print("{}", table.to_string());
}

void add_lab_ls(CLI::App& lab) {
  const auto json = std::make_shared<bool>(false);
  CLI::App* command = lab.add_subcommand("ls", "List the running labs");
  command->add_flag("--json", *json, "Print JSON instead of a table");
  command->footer("Example:\n  spillway lab ls");
  command->callback([json] { list_labs(*json); });
}

// `spillway lab down`: ends labs and everything that runs in them.

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

void take_down(const LabDownOptions& options) {
  if (!options.all) {
    end(select_lab(options.name));
    return;
  }
  for (const lab::LabRecord& lab : value_or_throw(lab::live_labs(lab::default_state_root()))) {
    end(lab);
  }
}

void add_lab_down(CLI::App& lab) {
  const auto options = std::make_shared<LabDownOptions>();
  CLI::App* command = lab.add_subcommand("down", "Ends a lab and everything in it");
  CLI::Option* name = command->add_option("--name", options->name, "Which; default: the only one");
  command->add_flag("--all", options->all, "All labs of this user")->excludes(name);
  command->footer("Examples:\n  spillway lab down\n  spillway lab down --all");
  command->callback([options] { take_down(*options); });
}

}  // namespace

void add_lab(CLI::App& app) {
  CLI::App* noun =
      app.add_subcommand("lab", "A network on this machine: hosts, links and switches, emulated");
  noun->require_subcommand(1);
  noun->footer("Example:\n  spillway lab run --preset incast -- python3 train.py");
  add_lab_compare(*noun);
  add_lab_down(*noun);
  add_lab_exec(*noun);
  add_lab_load(*noun);
  add_lab_ls(*noun);
  add_lab_presets(*noun);
  add_lab_run(*noun);
  add_lab_up(*noun);
}

}  // namespace spillway::cli
