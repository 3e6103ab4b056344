// SPDX-License-Identifier: Apache-2.0
//
// `spillway sim soak`: random worlds with every fault at once, and whether all that must hold held.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/text_table.h"
#include "sim/soak.h"

namespace spillway::cli {
namespace {

using nlohmann::json;

// Every so many worlds are run twice, to see whether the same happens again.
constexpr std::uint64_t kWorldsPerReplay = 8;
// Failed worlds whose sentences are printed; the others are only counted.
constexpr std::size_t kFailuresShown = 10;

constexpr std::array<std::string_view, 9> kFaultNames = {"loss",    "bursty",     "gray",
                                                         "down",    "duplicate",  "reorder",
                                                         "corrupt", "host death", "clock skew"};

struct SimSoakOptions {
  std::uint64_t seeds = 100;
  std::uint64_t first = 1;
  std::optional<std::uint64_t> seed;
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
  for (const sim::Fault& fault : result.world.scenario.faults) {
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
  Progress progress(options.seeds);
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

void run(const SimSoakOptions& options) {
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

}  // namespace

void add_sim_soak(CLI::App& sim) {
  const auto options = std::make_shared<SimSoakOptions>();
  CLI::App* command =
      sim.add_subcommand("soak", "Random worlds with every fault at once: does all hold?");
  command->add_option("--seeds", options->seeds, "How many worlds")->check(CLI::PositiveNumber);
  command->add_option("--first", options->first, "Seed of the first; the others follow it");
  command->add_option("--seed", options->seed, "Only this world, and print what it is");
  command->add_flag("--json", options->json, "Print JSON instead of a table");
  command->footer(
      "Examples:\n"
      "  spillway sim soak --seeds 1000\n"
      "  spillway sim soak --seed 17");
  command->callback([options] { run(*options); });
}

}  // namespace spillway::cli
