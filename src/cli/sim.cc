// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/duration_summary.h"
#include "bench/progress.h"
#include "cli/commands.h"
#include "cli/fabric_report.h"
#include "cli/scenario_file.h"
#include "cli/sum_report.h"
#include "cli/text_table.h"
#include "dataplane/port_config.h"
#include "sim/results.h"
#include "sim/simulation.h"
#include "sim/soak/soak.h"
#include "sim/soak/sum_soak.h"

namespace spillway::cli {
namespace {

// `spillway sim run`: one scenario through the simulator, as tables or as JSON.

using nlohmann::json;

struct SimRunOptions {
  std::string scenario;
  std::vector<std::string> overrides;
  std::string trace;
  std::optional<std::uint64_t> seed;
  bool json = false;
};

// ------------------------------------------------------------------ files

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) {
    throw CommandError(fmt::format("cannot write {}", path));
  }
}

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
    write_text(options.trace, sim::chrome_trace_of(*result));
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
                   "File that describes it (src/scenario/scenario.h)")
      ->required();
  command
      ->add_option("--set", options->overrides,
                   "noun.key=value: change a line; noun.2.key=value: only the second of that noun")
      ->allow_extra_args(false);
  command->add_option("--trace", options->trace, "Write a Chrome trace (ui.perfetto.dev) here");
  command->add_option("--seed", options->seed, "Of everything random, instead of the scenario's");
  command->add_flag("--json", options->json, "Print JSON instead of tables");
  command->footer(
      "Examples:\n"
      "  spillway sim run tests/scenarios/incast_trim.scn\n"
      "  spillway sim run tests/scenarios/incast_trim.scn --set job.protocol=dctcp"
      " --set switch.mode=ecn --set switch.ecn=30k\n"
      "  spillway sim run tests/scenarios/two_jobs.scn --trace two_jobs.json --seed 7");
  command->callback([options] { run_scenario_file(*options); });
}

// `spillway sim soak`: random worlds with every fault at once, and whether all that must hold held.

// Every so many worlds are run twice, to see whether the same happens again.
constexpr std::uint64_t kWorldsPerReplay = 8;
// Failed worlds whose sentences are printed; the others are only counted.
constexpr std::size_t kFailuresShown = 10;

constexpr std::array<std::string_view, 10> kFaultNames = {
    "loss",    "bursty",  "gray",       "down",       "duplicate",
    "reorder", "corrupt", "host death", "clock skew", "restart"};

struct SimSoakOptions {
  std::uint64_t seeds = 100;
  std::uint64_t first = 1;
  std::optional<std::uint64_t> seed;
  bool sums = false;
  bool json = false;
};

struct FailedWorld {
  std::uint64_t seed = 0;
  std::vector<std::string> sentences;
};

struct Tally {
  std::uint64_t worlds = 0;
  std::uint64_t replayed = 0;
  std::uint64_t messages = 0;
  std::uint64_t packets = 0;
  std::uint64_t attacks = 0;
  std::uint64_t forgeries = 0;
  std::uint64_t deaths_named = 0;
  std::array<std::uint64_t, wire::kOutcomes> outcomes{};
  std::uint64_t unended = 0;  // at receivers that died, or refused
  std::map<std::string_view, std::uint64_t> faults;
  std::vector<FailedWorld> failed;
  double seconds = 0.0;
};

void add(const sim::SoakResult& result, Tally& tally) {
  ++tally.worlds;
  tally.packets += result.record.packets;
  tally.attacks += result.record.attacks_arrived;
  tally.forgeries += result.record.forgeries_refused;
  tally.deaths_named += result.record.deaths.size();
  for (const sim::MessageRecord& message : result.record.messages) {
    ++tally.messages;
    if (message.received) {
      ++tally.outcomes[static_cast<std::size_t>(message.received->outcome)];
    } else {
      ++tally.unended;
    }
  }
  for (const scenario::Fault& fault : result.world.scenario.faults) {
    ++tally.faults[kFaultNames[static_cast<std::size_t>(fault.kind)]];
  }
  if (!result.failures.empty()) {
    tally.failed.push_back({result.world.seed, result.failures});
  }
}

void run_world(std::uint64_t seed, bool twice, Tally& tally) {
  sim::SoakResult result = sim::run_soak_world(seed);
  if (twice) {
    ++tally.replayed;
    const std::uint64_t again = sim::run_soak_world(seed).record.digest;
    if (again != result.record.digest) {
      result.failures.push_back(
          fmt::format("a second run went another way: digest {:016x}, not {:016x}", again,
                      result.record.digest));
    }
  }
  add(result, tally);
}

Tally run_worlds(const SimSoakOptions& options) {
  Tally tally;
  bench::Progress progress(options.seeds);
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < options.seeds; ++i) {
    const std::uint64_t seed = options.first + i;
    progress.step(fmt::format("world {}, {} failed", seed, tally.failed.size()));
    run_world(seed, i % kWorldsPerReplay == 0, tally);
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  tally.seconds = elapsed.count();
  return tally;
}

// ------------------------------------------------------------------ output

double worlds_per_second(const Tally& tally) {
  return static_cast<double>(tally.worlds + tally.replayed) / tally.seconds;
}

json tally_json(const Tally& tally) {
  json outcomes = json::object();
  for (unsigned outcome = 0; outcome < wire::kOutcomes; ++outcome) {
    outcomes[wire::outcome_name(static_cast<wire::Outcome>(outcome))] = tally.outcomes[outcome];
  }
  json failed = json::array();
  for (const FailedWorld& world : tally.failed) {
    failed.push_back({{"seed", world.seed}, {"failures", world.sentences}});
  }
  json faults = json::object();
  for (const auto& [name, count] : tally.faults) {
    faults[std::string(name)] = count;
  }
  return {{"worlds", tally.worlds},
          {"replayed", tally.replayed},
          {"messages", tally.messages},
          {"outcomes", outcomes},
          {"faults", faults},
          {"packets", tally.packets},
          {"attack_packets", tally.attacks},
          {"forgeries_refused", tally.forgeries},
          {"peers_given_up", tally.deaths_named},
          {"worlds_per_second", worlds_per_second(tally)},
          {"failed", failed}};
}

void print_table(const Tally& tally) {
  TextTable table({"soak", "count"});
  const auto row = [&table](std::string_view name, std::uint64_t count) {
    table.add_row({std::string(name), std::to_string(count)});
  };
  row("worlds", tally.worlds);
  row("  run twice, the same", tally.replayed);
  row("messages", tally.messages);
  for (unsigned outcome = 0; outcome < wire::kOutcomes; ++outcome) {
    row(fmt::format("  {}", wire::outcome_name(static_cast<wire::Outcome>(outcome))),
        tally.outcomes[outcome]);
  }
  row("  receiver died or refused", tally.unended);
  row("packets", tally.packets);
  row("  of an attacker, arrived", tally.attacks);
  row("  forged, refused", tally.forgeries);
  row("peers given up", tally.deaths_named);
  for (const auto& [name, count] : tally.faults) {
    row(fmt::format("fault: {}", name), count);
  }
  row("failed", tally.failed.size());
  fmt::print("{}\n{:.1f} worlds per second\n", table.to_string(), worlds_per_second(tally));
}

void print_failures(const Tally& tally) {
  for (std::size_t i = 0; i < std::min(tally.failed.size(), kFailuresShown); ++i) {
    const FailedWorld& world = tally.failed[i];
    for (const std::string& sentence : world.sentences) {
      fmt::print(stderr, "seed {}: {}\n", world.seed, sentence);
    }
    fmt::print(stderr, "replay: spillway sim soak --seed {}\n", world.seed);
  }
}

void soak(const SimSoakOptions& options) {
  if (options.seed) {
    fmt::print(stderr, "{}", sim::describe(sim::draw_soak_world(*options.seed)));
  }
  SimSoakOptions worlds = options;
  if (options.seed) {
    worlds.first = *options.seed;
    worlds.seeds = 1;
  }
  const Tally tally = run_worlds(worlds);
  if (options.json) {
    fmt::print("{}\n", tally_json(tally).dump(2));
  } else {
    print_table(tally);
  }
  print_failures(tally);
  if (!tally.failed.empty()) {
    throw CommandError(fmt::format("{} of {} worlds failed", tally.failed.size(), tally.worlds));
  }
}

// ------------------------------------------------------------------ worlds of sums

struct SumTally {
  std::uint64_t worlds = 0;
  std::uint64_t sums = 0;  // at all ranks
  std::uint64_t parts = 0;
  std::uint64_t missing = 0;
  std::uint64_t refused = 0;
  std::uint64_t packets = 0;
  spillway_sum_counters switches = {};
  std::vector<FailedWorld> failed;
};

void add(const sim::SumSoakResult& result, SumTally& tally) {
  ++tally.worlds;
  tally.sums += result.record.sums.size();
  tally.parts += result.record.parts;
  tally.missing += result.record.missing;
  tally.refused += result.record.refused;
  tally.packets += result.record.packets;
  for (std::size_t i = 0; i < SPILLWAY_SUM_OUTCOMES; ++i) {
    tally.switches.outcomes[i] += result.record.switches.outcomes[i];
  }
  tally.switches.copies += result.record.switches.copies;
  if (!result.failures.empty()) {
    tally.failed.push_back({result.world.seed, result.failures});
  }
}

// What there is to tell, with its name.
std::vector<std::pair<std::string, std::uint64_t>> rows_of(const SumTally& tally) {
  std::vector<std::pair<std::string, std::uint64_t>> rows = {
      {"worlds", tally.worlds},         {"sums", tally.sums},       {"parts", tally.parts},
      {"missing", tally.missing},       {"refused", tally.refused}, {"packets", tally.packets},
      {"copies", tally.switches.copies}};
  for (std::size_t i = 0; i < SPILLWAY_SUM_OUTCOMES; ++i) {
    rows.emplace_back(sim::sum_outcome_name(i), tally.switches.outcomes[i]);
  }
  rows.emplace_back("failed", tally.failed.size());
  return rows;
}

void print_sums(const SumTally& tally, bool as_json) {
  json out = json::object();
  TextTable table({"soak of sums", "count"});
  for (const auto& [name, count] : rows_of(tally)) {
    out[name] = count;
    table.add_row({name, std::to_string(count)});
  }
  fmt::print("{}\n", as_json ? out.dump(2) : table.to_string());
  for (std::size_t i = 0; i < std::min(tally.failed.size(), kFailuresShown); ++i) {
    for (const std::string& sentence : tally.failed[i].sentences) {
      fmt::print(stderr, "seed {}: {}\n", tally.failed[i].seed, sentence);
    }
    fmt::print(stderr, "replay: spillway sim soak --sums --seed {}\n", tally.failed[i].seed);
  }
}

void soak_sums(const SimSoakOptions& options) {
  const std::uint64_t first = options.seed.value_or(options.first);
  const std::uint64_t worlds = options.seed ? 1 : options.seeds;
  if (options.seed) {
    fmt::print(stderr, "{}", sim::describe(sim::draw_sum_world(first)));
  }
  SumTally tally;
  bench::Progress progress(worlds);
  for (std::uint64_t i = 0; i < worlds; ++i) {
    progress.step(fmt::format("world {}, {} failed", first + i, tally.failed.size()));
    add(sim::run_sum_world(first + i), tally);
  }
  print_sums(tally, options.json);
  if (!tally.failed.empty()) {
    throw CommandError(fmt::format("{} of {} worlds failed", tally.failed.size(), tally.worlds));
  }
}

void add_sim_soak(CLI::App& sim) {
  const auto options = std::make_shared<SimSoakOptions>();
  CLI::App* command =
      sim.add_subcommand("soak", "Random worlds with every fault at once: does all hold?");
  command->add_option("--seeds", options->seeds, "How many worlds")->check(CLI::PositiveNumber);
  command->add_option("--first", options->first, "Seed of the first; the others follow it");
  command->add_option("--seed", options->seed, "Only this world, and print what it is");
  command->add_flag("--sums", options->sums,
                    "Worlds of switches that add: does every part count once?");
  command->add_flag("--json", options->json, "Print JSON instead of a table");
  command->footer(
      "Examples:\n"
      "  spillway sim soak --seeds 1000\n"
      "  spillway sim soak --sums --seeds 20000\n"
      "  spillway sim soak --seed 17");
  command->callback([options] { options->sums ? soak_sums(*options) : soak(*options); });
}

}  // namespace

void add_sim(CLI::App& app) {
  CLI::App* noun = app.add_subcommand("sim", "Networks, hosts and flows, simulated");
  noun->require_subcommand(1);
  noun->footer("Example:\n  spillway sim run tests/scenarios/incast_trim.scn");
  add_sim_run(*noun);
  add_sim_jobs(*noun);
  add_sim_soak(*noun);
}

}  // namespace spillway::cli
