// SPDX-License-Identifier: Apache-2.0
//
// `spillway sim jobs`: runs training jobs on one simulated network and prints tables or JSON.
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/training/jobs.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/cli/scenario_file.h"
#include "tools/cli/sum_report.h"
#include "tools/cli/text_table.h"

namespace spillway::cli {
namespace {

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

}  // namespace

void add_sim_jobs(CLI::App& sim) {
  const auto options = std::make_shared<SimJobsOptions>();
  CLI::App* command =
      sim.add_subcommand("jobs", "Training jobs that share switches: when each is done");
  command
      ->add_option("scenario", options->scenario,
                   "File that describes them (sim/scenario/training.h)")
      ->required();
  command
      ->add_option("--set", options->overrides,
                   "noun.key=value: change a line; noun.2.key=value: only the second of that noun")
      ->allow_extra_args(false);
  command->add_option("--seed", options->seed, "Of everything random, instead of the scenario's")
      ->check(any_seed());
  command->add_flag("--json", options->json, "Print JSON instead of tables");
  command->footer(
      "Examples:\n"
      "  spillway sim jobs experiments/esa_jct/esa_jct.scn\n"
      "  spillway sim jobs experiments/esa_jct/esa_jct.scn --set aggregate.policy=first-come"
      " --set aggregate.slots=256");
  command->callback([options] { run_jobs(*options); });
}

}  // namespace spillway::cli
