// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <array>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/duration_summary.h"
#include "sim/results.h"
#include "sim/simulation.h"
#include "switch/dataplane/port_config.h"
#include "tools/bench/progress.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/cli/fabric_report.h"
#include "tools/cli/output_file.h"
#include "tools/cli/scenario_file.h"
#include "tools/cli/sum_report.h"
#include "tools/cli/text_table.h"

namespace spillway::cli {
namespace {

// `spillway sim run`: runs one scenario in the simulator and prints tables or JSON.

using nlohmann::json;

struct SimRunOptions {
  std::string scenario;
  std::vector<std::string> overrides;
  std::string trace;
  std::optional<std::uint64_t> seed;
  bool json = false;
};

// ------------------------------------------------------------------ files

scenario::Scenario scenario_of(const SimRunOptions& options) {
  std::vector<std::string> overrides = options.overrides;
  if (options.seed) {
    overrides.push_back(fmt::format("seed={}", *options.seed));
  }
  return load_scenario(options.scenario, overrides);
}

// ------------------------------------------------------------------ JSON

json summary_json(const base::DurationSummary& summary) {
  return {{"flows", summary.count},
          {"mean_us", base::microseconds_of(summary.mean)},
          {"p50_us", base::microseconds_of(summary.p50)},
          {"p99_us", base::microseconds_of(summary.p99)},
          {"max_us", base::microseconds_of(summary.max)}};
}

json priorities_json(const std::vector<sim::PriorityResult>& priorities) {
  json out = json::array();
  for (const sim::PriorityResult& row : priorities) {
    out.push_back({{"priority", row.priority}, {"completion", summary_json(row.completion)}});
  }
  return out;
}

json job_json(const sim::JobResult& job) {
  return {{"name", job.name},
          {"protocol", job.protocol},
          {"pattern", job.pattern},
          {"flows", job.flows},
          {"ended", job.ended},
          {"failed", job.failed},
          {"completion", summary_json(job.completion)},
          {"by_priority", priorities_json(job.by_priority)},
          {"makespan_us", base::microseconds_of(job.makespan)},
          {"bytes", job.bytes},
          {"whole_share", job.whole_share()},
          {"goodput_bps", job.goodput_bps},
          {"slowdown", job.slowdown},
          {"packets", job.packets},
          {"delivered", job.delivered},
          {"trimmed", job.trimmed},
          {"missing", job.missing()},
          {"important_expected", job.important_expected},
          {"important_delivered", job.important_delivered},
          {"sent", job.stacks.data_sent},
          {"resent", job.stacks.data_resent},
          {"timeouts", job.stacks.timeouts},
          {"probes", job.stacks.probes},
          {"arrived_marked", job.stacks.marked},
          {"arrived_trimmed", job.stacks.trimmed},
          {"worst_error", job.stacks.worst_error}};
}

json switches_json(const sim::NetworkTotals& network) {
  return {{"packets", reasons_json(network.ports)},
          {"trimmed_by_importance", network.ports.trimmed},
          {"dropped_by_importance", network.ports.dropped},
          {"dropped_control", network.ports.dropped_control},
          {"adders", adders_json(network.adders)}};
}

json result_json(const scenario::Scenario& scenario, const sim::ScenarioResult& result) {
  json jobs = json::array();
  for (const sim::JobResult& job : result.jobs) {
    jobs.push_back(job_json(job));
  }
  return {{"seed", scenario.seed},
          {"finished", result.finished},
          {"simulated_us", base::microseconds_of(result.end.since_zero())},
          {"events", result.events},
          {"completion", summary_json(result.completion)},
          {"jobs", jobs},
          {"switches", switches_json(result.network)},
          {"network",
           {{"sent", result.network.sent},
            {"delivered", result.network.delivered},
            {"lost_to_faults", result.network.lost},
            {"duplicated", result.network.duplicated}}}};
}

// ------------------------------------------------------------------ tables

std::string format_time(base::Duration duration) {
  const double us = base::microseconds_of(duration);
  if (us < 1e3) {
    return fmt::format("{:.1f} us", us);
  }
  return us < 1e6 ? fmt::format("{:.3f} ms", us / 1e3) : fmt::format("{:.3f} s", us / 1e6);
}

TextTable jobs_table(const sim::ScenarioResult& result) {
  TextTable table({"job", "protocol", "flows", "ended", "mean", "p50", "p99", "max", "makespan",
                   "whole", "Gbit/s", "x ideal"});
  for (const sim::JobResult& job : result.jobs) {
    table.add_row({job.name, job.protocol, std::to_string(job.flows), std::to_string(job.ended),
                   format_time(job.completion.mean), format_time(job.completion.p50),
                   format_time(job.completion.p99), format_time(job.completion.max),
                   format_time(job.makespan), fmt::format("{:.1f} %", 100 * job.whole_share()),
                   fmt::format("{:.2f}", job.goodput_bps / 1e9),
                   job.slowdown > 0.0 ? fmt::format("{:.2f}", job.slowdown) : "-"});
  }
  return table;
}

TextTable packets_table(const sim::ScenarioResult& result) {
  TextTable table(
      {"job", "packets", "sent", "resent", "timeouts", "probes", "marked", "trimmed", "missing"});
  for (const sim::JobResult& job : result.jobs) {
    table.add_row({job.name, std::to_string(job.packets), std::to_string(job.stacks.data_sent),
                   std::to_string(job.stacks.data_resent), std::to_string(job.stacks.timeouts),
                   std::to_string(job.stacks.probes), std::to_string(job.stacks.marked),
                   std::to_string(job.trimmed), std::to_string(job.missing())});
  }
  return table;
}

TextTable switches_table(const sim::NetworkTotals& network) {
  TextTable table({"switches", "packets", "bytes"});
  for (unsigned reason = 0; reason < SPILLWAY_REASONS; ++reason) {
    if (network.ports.packets[reason] > 0) {
      const auto name = dataplane::reason_name(static_cast<spillway_reason>(reason));
      table.add_row({std::string(name), std::to_string(network.ports.packets[reason]),
                     std::to_string(network.ports.bytes[reason])});
    }
  }
  for (unsigned importance = 0; importance < SPILLWAY_PRIORITIES; ++importance) {
    if (network.ports.dropped[importance] > 0) {
      table.add_row({fmt::format("dropped, importance {}", importance),
                     std::to_string(network.ports.dropped[importance]), ""});
    }
  }
  if (network.lost > 0) {
    table.add_row({"lost to faults", std::to_string(network.lost), ""});
  }
  return table;
}

void print_tables(const SimRunOptions& options, const scenario::Scenario& scenario,
                  const sim::ScenarioResult& result) {
  fmt::print("{}, seed {}: {} of simulated time, {} events\n\n",
             std::filesystem::path(options.scenario).filename().string(), scenario.seed,
             format_time(result.end.since_zero()), result.events);
  fmt::print("{}\n{}\n{}", jobs_table(result).to_string(), packets_table(result).to_string(),
             switches_table(result.network).to_string());
  if (!result.network.adders.empty()) {
    fmt::print("\n{}", adders_table(result.network.adders).to_string());
  }
  if (!result.finished) {
    fmt::print("\nNot finished: flows were left when the limit of {} came.\n",
               format_time(scenario.limit));
  }
}

void run_scenario_file(const SimRunOptions& options) {
  const scenario::Scenario scenario = scenario_of(options);
  const base::Result<sim::ScenarioResult> result =
      sim::run_scenario(scenario, {.sample_counters = !options.trace.empty()});
  if (!result.ok()) {
    throw CommandError(fmt::format("{}: {}", options.scenario, result.status().message()));
  }
  if (!options.trace.empty()) {
    write_output(options.trace, sim::chrome_trace_of(*result), "--trace: ");
  }
  if (options.json) {
    fmt::print("{}\n", result_json(scenario, *result).dump(2));
  } else {
    print_tables(options, scenario, *result);
  }
}

void add_sim_run(CLI::App& sim) {
  const auto options = std::make_shared<SimRunOptions>();
  CLI::App* command =
      sim.add_subcommand("run", "One scenario: when its flows end, and what it cost");
  command
      ->add_option("scenario", options->scenario,
                   "File that describes it (sim/scenario/scenario.h)")
      ->required();
  command
      ->add_option("--set", options->overrides,
                   "noun.key=value: change a line; noun.2.key=value: only the second of that noun")
      ->allow_extra_args(false);
  command->add_option("--trace", options->trace, "Write a Chrome trace (ui.perfetto.dev) here");
  command->add_option("--seed", options->seed, "Of everything random, instead of the scenario's")
      ->check(any_seed());
  command->add_flag("--json", options->json, "Print JSON instead of tables");
  command->footer(
      "Examples:\n"
      "  spillway sim run tests/scenarios/incast_trim.scn\n"
      "  spillway sim run tests/scenarios/incast_trim.scn --set job.protocol=dctcp"
      " --set switch.mode=ecn --set switch.ecn=30k\n"
      "  spillway sim run tests/scenarios/two_jobs.scn --trace two_jobs.json --seed 7");
  command->callback([options] { run_scenario_file(*options); });
}

}  // namespace

void add_sim(CLI::App& app) {
  CLI::App* noun = app.add_subcommand("sim", "Networks, hosts and flows, simulated");
  noun->require_subcommand(1);
  noun->footer("Example:\n  spillway sim run tests/scenarios/incast_trim.scn");
  add_sim_run(*noun);
  add_sim_jobs(*noun);
  add_sim_soak(*noun);
  add_sim_drill(*noun);
}

}  // namespace spillway::cli
