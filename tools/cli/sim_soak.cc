// SPDX-License-Identifier: Apache-2.0
//
// `spillway sim soak`: random worlds with every fault at once; checks that all invariants held.
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/soak/code_soak.h"
#include "sim/soak/soak.h"
#include "sim/soak/sum_soak.h"
#include "tools/bench/progress.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/cli/output.h"

namespace spillway::cli {
namespace {

using nlohmann::json;

// Every kWorldsPerReplay-th world is run twice, to check that it is deterministic.
constexpr std::uint64_t kWorldsPerReplay = 8;
// How many failed worlds are printed; the others are only counted.
constexpr std::size_t kFailuresShown = 10;

constexpr std::array<std::string_view, 10> kFaultNames = {
    "loss",    "bursty",  "gray",       "down",       "duplicate",
    "reorder", "corrupt", "host death", "clock skew", "restart"};

struct SimSoakOptions {
  std::uint64_t seeds = 100;
  std::uint64_t first = 1;
  std::optional<std::uint64_t> seed;
  bool sums = false;
  bool codecs = false;
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
  std::uint64_t unended = 0;  // messages whose receiver died or refused them
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

// `kind`: the command-line option for this kind of world.
void print_failures(const std::vector<FailedWorld>& failed, std::string_view kind) {
  for (std::size_t i = 0; i < std::min(failed.size(), kFailuresShown); ++i) {
    for (const std::string& sentence : failed[i].sentences) {
      fmt::print(stderr, "seed {}: {}\n", failed[i].seed, sentence);
    }
    fmt::print(stderr, "replay: spillway sim soak {}--seed {}\n", kind, failed[i].seed);
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
  print_failures(tally.failed, "");
  if (!tally.failed.empty()) {
    throw CommandError(fmt::format("{} of {} worlds failed", tally.failed.size(), tally.worlds));
  }
}

// ------------------------------------------------------------------ worlds of sums

struct SumTally {
  std::uint64_t worlds = 0;
  std::uint64_t sums = 0;  // totals of all ranks
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

// The counters with their names.
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

// ------------------------------------------------------------------ worlds of codecs

struct CodeTally {
  std::uint64_t worlds = 0;
  std::map<std::string, std::uint64_t> calls;  // by codec, totals of all ranks
  std::uint64_t tables = 0;
  std::uint64_t given_up = 0;
  std::uint64_t packets = 0;
  std::vector<FailedWorld> failed;
};

void add(const sim::CodeSoakResult& result, CodeTally& tally) {
  ++tally.worlds;
  for (const sim::CodeRecord& record : result.record.calls) {
    const sim::CodeCall& call = result.world.calls[record.call];
    ++tally.calls[call.tolerance ? collective::codec_name(call.tolerance->codec) : "exact"];
  }
  tally.tables += result.record.tables;
  tally.given_up += result.record.given_up;
  tally.packets += result.record.packets;
  if (!result.failures.empty()) {
    tally.failed.push_back({result.world.seed, result.failures});
  }
}

std::vector<std::pair<std::string, std::uint64_t>> rows_of(const CodeTally& tally) {
  std::vector<std::pair<std::string, std::uint64_t>> rows = {{"worlds", tally.worlds},
                                                             {"packets", tally.packets}};
  for (const auto& [codec, calls] : tally.calls) {
    rows.emplace_back(codec, calls);
  }
  rows.insert(rows.end(), {{"tables along", tally.tables},
                           {"given up", tally.given_up},
                           {"failed", tally.failed.size()}});
  return rows;
}

// ------------------------------------------------------------------ both

template <typename Rows>
void print_rows(const std::string& what, const Rows& rows, bool as_json) {
  json out = json::object();
  TextTable table({"soak of " + what, "count"});
  for (const auto& [name, count] : rows) {
    out[name] = count;
    table.add_row({name, std::to_string(count)});
  }
  fmt::print("{}\n", as_json ? out.dump(2) : table.to_string());
}

// `draw` and `run` make and run the world of a seed.
template <typename Tally, typename Draw, typename Run>
void soak_worlds(const std::string& what, const SimSoakOptions& options, Draw&& draw, Run&& run) {
  const std::uint64_t first = options.seed.value_or(options.first);
  const std::uint64_t worlds = options.seed ? 1 : options.seeds;
  if (options.seed) {
    fmt::print(stderr, "{}", sim::describe(draw(first)));
  }
  Tally tally;
  bench::Progress progress(worlds);
  for (std::uint64_t i = 0; i < worlds; ++i) {
    progress.step(fmt::format("world {}, {} failed", first + i, tally.failed.size()));
    add(run(first + i), tally);
  }
  print_rows(what, rows_of(tally), options.json);
  print_failures(tally.failed, fmt::format("--{} ", what));
  if (!tally.failed.empty()) {
    throw CommandError(fmt::format("{} of {} worlds failed", tally.failed.size(), tally.worlds));
  }
}

void soak_as_told(const SimSoakOptions& options) {
  if (options.sums) {
    soak_worlds<SumTally>("sums", options, sim::draw_sum_world,
                          [](std::uint64_t seed) { return sim::run_sum_world(seed); });
  } else if (options.codecs) {
    soak_worlds<CodeTally>("codes", options, sim::draw_code_world, sim::run_code_world);
  } else {
    soak(options);
  }
}

}  // namespace

void add_sim_soak(CLI::App& sim) {
  const auto options = std::make_shared<SimSoakOptions>();
  CLI::App* command =
      sim.add_subcommand("soak", "Random worlds with every fault at once: does all hold?");
  add_seed_options(*command, *options);
  CLI::Option* sums = command->add_flag("--sums", options->sums,
                                        "Worlds of switches that add: does every part count once?");
  command
      ->add_flag(
          "--codecs", options->codecs,
          "Worlds of all-reduces with every codec: do all ranks have the same, and is it right?")
      ->excludes(sums);
  command->add_flag("--json", options->json, "Print JSON instead of a table");
  command->footer(
      "Examples:\n"
      "  spillway sim soak --seeds 1000\n"
      "  spillway sim soak --sums --seeds 20000\n"
      "  spillway sim soak --codecs --seeds 1000\n"
      "  spillway sim soak --seed 17");
  command->callback([options] { soak_as_told(*options); });
}

}  // namespace spillway::cli
