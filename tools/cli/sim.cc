// SPDX-License-Identifier: Apache-2.0
//
// `spillway sim run` and `jobs`: one scenario of flows, or of training jobs, in the simulator.
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
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "sim/results.h"
#include "sim/simulation.h"
#include "sim/training/job.h"
#include "switch/dataplane/port_config.h"
#include "tools/bench/progress.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/cli/fabric_report.h"
#include "tools/cli/output.h"

namespace spillway::cli {
namespace {

// ------------------------------------------------------------------ spillway sim run

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
  command
      ->add_option("--seed", options->seed, "Seed of everything random, instead of the scenario's")
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

// ------------------------------------------------------------------ spillway sim jobs

// `spillway sim jobs`: runs training jobs on one simulated network and prints tables or JSON.

using nlohmann::json;

struct SimJobsOptions {
  std::string scenario;
  std::vector<std::string> overrides;
  std::optional<std::uint64_t> seed;
  bool json = false;
};

std::string_view end_name(sim::TrainingEnd end) {
  switch (end) {
    case sim::TrainingEnd::kDone:
      return "done";
    case sim::TrainingEnd::kFailed:
      return "failed";
    case sim::TrainingEnd::kCutOff:
      break;
  }
  return "cut off";
}

json training_json(const sim::TrainingResult& job) {
  return {{"name", job.name},
          {"end", end_name(job.end)},
          {"failure", job.failure.message()},
          {"completion_us", base::microseconds_of(job.completion)},
          {"step_computation_us", base::microseconds_of(job.costs.computation)},
          {"step_communication_us", base::microseconds_of(job.costs.communication)},
          {"reduces", job.reduce.count},
          {"reduce_mean_us", base::microseconds_of(job.reduce.mean)},
          {"reduce_p99_us", base::microseconds_of(job.reduce.p99)},
          {"step_chunks", job.chunks},
          {"sums_sent", job.sums_sent},
          {"sums_repeated", job.sums_repeated},
          {"flushes_sent", job.flushes_sent}};
}

json trainings_json(const scenario::Scenario& scenario, const sim::TrainingsResult& result) {
  json jobs = json::array();
  for (const sim::TrainingResult& job : result.jobs) {
    jobs.push_back(training_json(job));
  }
  return {{"seed", scenario.seed},
          {"finished", result.finished},
          {"simulated_us", base::microseconds_of(result.end.since_zero())},
          {"events", result.events},
          {"mean_completion_us", base::microseconds_of(result.mean_completion())},
          {"jobs", jobs},
          {"adders", adders_json(result.network.adders)}};
}

std::string in_milliseconds(base::Duration duration) {
  return fmt::format("{:.3f}", base::microseconds_of(duration) / 1000);
}

TextTable trainings_table(const sim::TrainingsResult& result) {
  TextTable table({"job", "end", "completion ms", "step computes", "step sends", "all-reduce mean",
                   "p99", "chunks a step", "repeated", "flushes"});
  for (const sim::TrainingResult& job : result.jobs) {
    table.add_row({job.name, std::string(end_name(job.end)), in_milliseconds(job.completion),
                   in_milliseconds(job.costs.computation), in_milliseconds(job.costs.communication),
                   in_milliseconds(job.reduce.mean), in_milliseconds(job.reduce.p99),
                   std::to_string(job.chunks), std::to_string(job.sums_repeated),
                   std::to_string(job.flushes_sent)});
  }
  return table;
}

void print_trainings(const scenario::Scenario& scenario, const sim::TrainingsResult& result) {
  fmt::print("Seed {}: {} ms of simulated time, {} events; mean completion {} ms\n\n{}",
             scenario.seed, in_milliseconds(result.end.since_zero()), result.events,
             in_milliseconds(result.mean_completion()), trainings_table(result).to_string());
  if (!result.network.adders.empty()) {
    fmt::print("\n{}", adders_table(result.network.adders).to_string());
  }
  for (const sim::TrainingResult& job : result.jobs) {
    if (job.end == sim::TrainingEnd::kFailed) {
      fmt::print("\n{}: {}\n", job.name, job.failure.message());
    }
  }
  if (!result.finished) {
    fmt::print("\nNot finished: jobs were left when the limit of {} ms came.\n",
               in_milliseconds(scenario.limit));
  }
}

void run_jobs(const SimJobsOptions& options) {
  std::vector<std::string> overrides = options.overrides;
  if (options.seed) {
    overrides.push_back(fmt::format("seed={}", *options.seed));
  }
  const scenario::Scenario scenario = load_scenario(options.scenario, overrides);
  const base::Result<sim::TrainingsResult> result = sim::run_trainings(scenario);
  if (!result.ok()) {
    throw CommandError(fmt::format("{}: {}", options.scenario, result.status().message()));
  }
  if (options.json) {
    fmt::print("{}\n", trainings_json(scenario, *result).dump(2));
  } else {
    print_trainings(scenario, *result);
  }
}

void add_sim_jobs(CLI::App& sim) {
  const auto options = std::make_shared<SimJobsOptions>();
  CLI::App* command =
      sim.add_subcommand("jobs", "Training jobs that share switches: when each is done");
  command
      ->add_option("scenario", options->scenario,
                   "File that describes them (sim/scenario/aggregation.h)")
      ->required();
  command
      ->add_option("--set", options->overrides,
                   "noun.key=value: change a line; noun.2.key=value: only the second of that noun")
      ->allow_extra_args(false);
  command
      ->add_option("--seed", options->seed, "Seed of everything random, instead of the scenario's")
      ->check(any_seed());
  command->add_flag("--json", options->json, "Print JSON instead of tables");
  command->footer(
      "Examples:\n"
      "  spillway sim jobs experiments/esa_jct/esa_jct.scn\n"
      "  spillway sim jobs experiments/esa_jct/esa_jct.scn --set aggregate.policy=first-come"
      " --set aggregate.slots=256");
  command->callback([options] { run_jobs(*options); });
}

}  // namespace

void add_sim(CLI::App& app) {
  CLI::App* noun = app.add_subcommand("sim", "Networks, hosts and flows, simulated");
  noun->require_subcommand(1);
  noun->footer("Example:\n  spillway sim run tests/scenarios/incast_trim.scn");
  add_sim_run(*noun);
  add_sim_jobs(*noun);
  add_sim_allreduce(*noun);
  add_sim_soak(*noun);
  add_sim_drill(*noun);
}

}  // namespace spillway::cli
