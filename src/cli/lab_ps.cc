// SPDX-License-Identifier: Apache-2.0
//
// `spillway lab ps`: the labs that run, and the removal of what dead ones left behind.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/text_table.h"
#include "lab/state_directory.h"

namespace spillway::cli {
namespace {

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

void run(bool json) {
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

}  // namespace

void add_lab_ps(CLI::App& lab) {
  const auto json = std::make_shared<bool>(false);
  CLI::App* command = lab.add_subcommand("ps", "The labs that run");
  command->add_flag("--json", *json, "Print JSON instead of a table");
  command->footer("Example:\n  spillway lab ps");
  command->callback([json] { run(*json); });
}

}  // namespace spillway::cli
