// SPDX-License-Identifier: Apache-2.0
//
// `spillway sim drill`: jobs whose members die, fall silent, are cut off and come back. Checks that
// each job continues with the right members, or that all report why not.
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/drill/drill.h"
#include "tools/bench/progress.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/cli/output.h"

namespace spillway::cli {
namespace {

// Every kDrillsPerReplay-th world is run twice, to check that it is deterministic.
constexpr std::uint64_t kDrillsPerReplay = 8;
// How many failed worlds are printed, and how many sentences of each; the others are only counted.
constexpr std::size_t kFailedDrillsShown = 10;
constexpr std::size_t kDrillSentencesShown = 8;
constexpr std::uint32_t kMostDrillRanks = 2048;

struct SimDrillOptions {
  std::uint64_t seeds = 1000;
  std::uint64_t first = 1;
  std::optional<std::uint64_t> seed{};
  std::uint32_t members = 0;
  bool phases = false;
  bool json = false;
};

struct FailedDrill {
  std::uint64_t seed = 0;
  std::vector<std::string> sentences{};
};

struct DrillTally {
  std::uint64_t worlds = 0;
  std::uint64_t replayed = 0;
  std::uint64_t had_to_survive = 0;
  std::uint64_t decisions = 0;
  std::uint64_t ended_jobs = 0;
  std::uint64_t steps = 0;
  std::uint64_t steps_repeated = 0;
  std::uint64_t stragglers = 0;
  std::uint64_t messages = 0;
  std::array<std::uint64_t, sim::kTroubleKinds> troubles{};
  std::array<std::uint64_t, sim::kDrillPhases> in_phase{};
  std::vector<FailedDrill> failed{};
  double seconds = 0;
};

void add(const sim::DrillResult& result, DrillTally& tally) {
  const sim::DrillRecord& record = result.record;
  ++tally.worlds;
  tally.had_to_survive += sim::must_survive(result.world, record) ? 1 : 0;
  tally.decisions += record.decisions.size();
  tally.ended_jobs +=
      static_cast<std::uint64_t>(std::ranges::count_if(record.decisions, [](const auto& of) {
        return of.second.outcome == membership::Outcome::kEnds;
      }));
  tally.steps += record.completions.size();
  tally.steps_repeated += record.steps_repeated;
  tally.stragglers += record.stragglers;
  tally.messages += record.messages;
  for (std::size_t i = 0; i < sim::kTroubleKinds; ++i) {
    tally.troubles[i] += record.troubles[i];
  }
  for (std::size_t i = 0; i < sim::kDrillPhases; ++i) {
    tally.in_phase[i] += record.in_phase[i];
  }
  if (!result.failures.empty()) {
    tally.failed.push_back({result.world.seed, result.failures});
  }
}

void run_drill_world(const sim::DrillWorld& world, bool twice, DrillTally& tally) {
  sim::DrillResult result = sim::run_drill(world);
  if (twice) {
    ++tally.replayed;
    if (sim::run_drill(world).record.digest != result.record.digest) {
      result.failures.emplace_back("a second run went another way");
    }
  }
  add(result, tally);
}

DrillTally run_drills(const std::vector<sim::DrillWorld>& worlds) {
  DrillTally tally;
  bench::Progress progress(worlds.size());
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < worlds.size(); ++i) {
    progress.step(fmt::format("world {}, {} failed", worlds[i].seed, tally.failed.size()));
    run_drill_world(worlds[i], i % kDrillsPerReplay == 0, tally);
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  tally.seconds = elapsed.count();
  return tally;
}

std::vector<sim::DrillWorld> worlds_of(const SimDrillOptions& options) {
  std::vector<sim::DrillWorld> worlds;
  const std::uint64_t first = options.seed.value_or(options.first);
  if (options.phases) {
    for (const sim::DrillWorld& world :
         sim::phase_worlds(options.members == 0 ? 8 : options.members)) {
      if (!options.seed || world.seed == first) {
        worlds.push_back(world);
      }
    }
    return worlds;
  }
  for (std::uint64_t i = 0; i < (options.seed ? 1 : options.seeds); ++i) {
    worlds.push_back(sim::draw_drill_world(first + i, options.members));
  }
  return worlds;
}

std::vector<std::pair<std::string, std::uint64_t>> rows_of(const DrillTally& tally) {
  std::vector<std::pair<std::string, std::uint64_t>> rows = {
      {"worlds", tally.worlds},
      {"run twice", tally.replayed},
      {"had to survive", tally.had_to_survive},
      {"decisions", tally.decisions},
      {"decisions to end", tally.ended_jobs},
      {"steps at ranks", tally.steps},
      {"steps repeated", tally.steps_repeated},
      {"stragglers", tally.stragglers},
      {"messages", tally.messages}};
  for (std::size_t i = 0; i < sim::kTroubleKinds; ++i) {
    rows.emplace_back(fmt::format("trouble: {}", sim::trouble_name(sim::TroubleKind(i))),
                      tally.troubles[i]);
  }
  for (std::size_t i = 0; i < sim::kDrillPhases; ++i) {
    rows.emplace_back(fmt::format("in phase: {}", sim::phase_name(sim::DrillPhase(i))),
                      tally.in_phase[i]);
  }
  rows.emplace_back("failed", tally.failed.size());
  return rows;
}

void print_drills(const DrillTally& tally, bool as_json) {
  nlohmann::json out = nlohmann::json::object();
  TextTable table({"drill", "count"});
  for (const auto& [name, count] : rows_of(tally)) {
    out[name] = count;
    table.add_row({name, std::to_string(count)});
  }
  const double rate = static_cast<double>(tally.worlds + tally.replayed) / tally.seconds;
  out["worlds_per_second"] = rate;
  if (as_json) {
    fmt::print("{}\n", out.dump(2));
  } else {
    fmt::print("{}\n{:.1f} worlds per second\n", table.to_string(), rate);
  }
}

void print_failed(const DrillTally& tally, const SimDrillOptions& options) {
  for (std::size_t i = 0; i < std::min(tally.failed.size(), kFailedDrillsShown); ++i) {
    const FailedDrill& failed = tally.failed[i];
    for (std::size_t s = 0; s < std::min(failed.sentences.size(), kDrillSentencesShown); ++s) {
      fmt::print(stderr, "world {}: {}\n", failed.seed, failed.sentences[s]);
    }
    fmt::print(
        stderr, "replay: spillway sim drill {}{}--seed {}\n", options.phases ? "--phases " : "",
        options.members == 0 ? "" : fmt::format("--members {} ", options.members), failed.seed);
  }
}

void drill(const SimDrillOptions& options) {
  const std::vector<sim::DrillWorld> worlds = worlds_of(options);
  if (worlds.empty()) {
    const std::size_t count = worlds_of({.members = options.members, .phases = true}).size();
    throw CLI::ValidationError("--seed",
                               fmt::format("with --phases it must be from 1 to {}", count));
  }
  if (options.seed) {
    fmt::print(stderr, "{}", sim::describe(worlds.front()));
  }
  const DrillTally tally = run_drills(worlds);
  print_drills(tally, options.json);
  print_failed(tally, options);
  if (!tally.failed.empty()) {
    throw CommandError(fmt::format("{} of {} worlds failed", tally.failed.size(), tally.worlds));
  }
}

}  // namespace

void add_sim_drill(CLI::App& sim) {
  const auto options = std::make_shared<SimDrillOptions>();
  CLI::App* command = sim.add_subcommand(
      "drill", "Jobs that lose members: do they go on with the right ones, or say why not?");
  add_seed_options(*command, *options);
  command->add_option("--members", options->members, "Ranks of each world; as drawn if not given")
      ->check(whole_number(4, kMostDrillRanks));
  command->add_flag("--phases", options->phases,
                    "Not random worlds: every trouble in every phase of a change");
  command->add_flag("--json", options->json, "Print JSON instead of a table");
  command->footer(
      "Examples:\n"
      "  spillway sim drill --seeds 5000\n"
      "  spillway sim drill --phases --members 1024\n"
      "  spillway sim drill --seed 17");
  command->callback([options] { drill(*options); });
}

}  // namespace spillway::cli
