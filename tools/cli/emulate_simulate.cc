// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/resource.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "emulate/simulate/flow_model.h"
#include "emulate/simulate/graph_run.h"
#include "emulate/simulate/packet_model.h"
#include "emulate/trace/reader.h"
#include "tools/cli/commands.h"
#include "tools/cli/emulate_options.h"
#include "tools/cli/output.h"

namespace spillway::cli {
namespace {

// `spillway emulate simulate`: runs a trace, or a model's step, on a network in virtual time.

using nlohmann::json;

enum class SimulationLevel { kFlows, kPackets };

struct EmulateSimulateOptions {
  std::string trace;
  emulate::LlmStepOptions model;
  EmulateNetworkOptions network;
  SimulationLevel level = SimulationLevel::kFlows;
  std::string limit = "100000s";
  std::vector<std::string> slow;
  std::vector<std::string> dead;
  std::string results;
  std::string out;
  bool json = false;
};

// ------------------------------------------------------------------ what is said

std::vector<emulate::RankFault> troubles_of(const EmulateSimulateOptions& options,
                                            std::uint32_t ranks) {
  check_ranks("--slow", options.slow, ranks);
  check_ranks("--dead", options.dead, ranks);
  std::map<std::uint32_t, emulate::RankFault> by_rank;
  for (const std::string& text : options.slow) {
    const auto [rank, factor] = rank_and_factor("--slow", text);
    by_rank[rank].factor = factor;
  }
  for (const std::string& text : options.dead) {
    const auto [rank, value] = rank_and("--dead", text);
    by_rank[rank].dies = base::Instant(parsed("--dead", base::parse_duration(value)));
  }
  std::vector<emulate::RankFault> troubles;
  for (auto& [rank, trouble] : by_rank) {
    trouble.rank = rank;
    troubles.push_back(trouble);
  }
  return troubles;
}

emulate::World world_of(const EmulateSimulateOptions& options) {
  const emulate::GraphOptions graph{.keeps_names = !options.out.empty()};
  if (!options.trace.empty()) {
    return value_or_throw(emulate::read_world(options.trace, graph));
  }
  check_model(options.model);
  emulate::GraphBuilder builder(graph);
  builder.set_source("synthesized", 0);
  throw_unless_ok(emulate::synthesize(options.model, builder));
  return std::move(builder).finish();
}

// ------------------------------------------------------------------ results as they arise

// One line per transfer, flushed every kLinesTogether lines and at the end, so that an interrupted
// run leaves its results so far.
class ResultLines {
 public:
  ResultLines(const std::string& path, const emulate::World& world)
      : world_(world), path_(path), file_(open_output(path, kOption)) {
    write("what,group,members,bytes,began_us,ended_us\n");
  }

  void add(const emulate::Transfer& transfer, base::Instant began, base::Instant ended) {
    const bool is_message = transfer.is_message;
    write(fmt::format("{},{},{},{},{:.3f},{:.3f}\n",
                      is_message ? "message" : emulate::collective_kind_name(transfer.collective),
                      is_message ? fmt::format("{}>{}", transfer.from, transfer.to)
                                 : base::printable(world_.groups[transfer.group].name),
                      is_message ? 2 : world_.groups[transfer.group].ranks.size(), transfer.bytes,
                      base::microseconds_of(began.since_zero()),
                      base::microseconds_of(ended.since_zero())));
    if (++lines_ % kLinesTogether == 0) {
      flush();
    }
  }
  void finish() {
    flush();
    check(std::fclose(file_.release()) == 0);
  }

 private:
  static constexpr std::uint64_t kLinesTogether = 1000;
  static constexpr const char* kOption = "--results: ";
  void write(const std::string& text) {
    check(std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size());
  }
  void flush() { check(std::fflush(file_.get()) == 0); }
  void check(bool is_good) const {
    if (!is_good) {
      throw CommandError(fmt::format("{}{}", kOption, base::not_opened(path_, errno).message()));
    }
  }

  const emulate::World& world_;
  std::string path_;
  OutputFile file_;
  std::uint64_t lines_ = 0;
};

// ------------------------------------------------------------------ the run

struct SimulationOutcome {
  emulate::GraphRunResult run;
  std::uint32_t ranks = 0;
  std::uint64_t nodes = 0;
  double read_s = 0.0;
  double run_s = 0.0;
  double memory_gib = 0.0;
  double computing_share = 0.0;  // of a rank's time, averaged over ranks
  std::optional<std::uint64_t> packets;
  std::uint64_t failed_flows = 0;
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double peak_gib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / (1024.0 * 1024.0);
}

double computing_share_of(const emulate::GraphRunResult& run) {
  double sum = 0.0;
  for (const emulate::RankTotals& rank : run.ranks) {
    sum += static_cast<double>(rank.computing.count());
  }
  const auto all = static_cast<double>(run.ended.since_zero().count());
  return run.ranks.empty() || all <= 0.0 ? 0.0 : sum / all / static_cast<double>(run.ranks.size());
}

void run_flows(const EmulateSimulateOptions& options, const emulate::World& world,
               const emulate::GraphRunOptions& run_options, SimulationOutcome& outcome) {
  const emulate::FabricPaths paths = paths_of(options.network, world.size());
  const emulate::Matches meetings(world);
  emulate::FlowModel model(world, paths, flow_options_of(options.network));
  outcome.run = emulate::GraphRun(world, meetings, model, run_options).run();
}

void run_packets(const EmulateSimulateOptions& options, const emulate::World& world,
                 const emulate::GraphRunOptions& run_options, SimulationOutcome& outcome) {
  if (options.network.node_ranks != 1 || options.network.bits != 32.0) {
    throw CLI::ValidationError("--level", "packets has ranks alone on hosts, and no codes");
  }
  const auto model =
      made_on_network(options.network, world.size(), [&](const scenario::Scenario& network) {
        return emulate::PacketModel::make(world, network, options.network.algorithm);
      });
  const emulate::Matches meetings(world);
  outcome.run = emulate::GraphRun(world, meetings, *model, run_options).run();
  outcome.packets = model->packets_sent();
  outcome.failed_flows = model->failed_flows();
}

// ------------------------------------------------------------------ what is printed

json outcome_json(const SimulationOutcome& outcome) {
  json made = {{"ranks", outcome.ranks},
               {"nodes", outcome.nodes},
               {"nodes_run", outcome.run.nodes_run},
               {"finished", outcome.run.status.ok()},
               {"time_us", base::microseconds_of(outcome.run.ended.since_zero())},
               {"computing_share", outcome.computing_share},
               {"transfers", outcome.run.transfers},
               {"events", outcome.run.events},
               {"read_s", outcome.read_s},
               {"run_s", outcome.run_s},
               {"events_per_s", static_cast<double>(outcome.run.events) / outcome.run_s},
               {"memory_gib", outcome.memory_gib}};
  if (outcome.packets) {
    made["packets"] = *outcome.packets;
    made["failed_flows"] = outcome.failed_flows;
  }
  return made;
}

void print_outcome(const SimulationOutcome& outcome) {
  fmt::print("{} ranks, {} nodes, {} transfers: {:.3f} ms\n", outcome.ranks, outcome.nodes,
             outcome.run.transfers, base::microseconds_of(outcome.run.ended.since_zero()) / 1000.0);
  fmt::print("{:.1f} % of it ranks compute, on average; the rest they wait\n",
             100.0 * outcome.computing_share);
  if (outcome.packets) {
    fmt::print("{} packets, {} flows failed\n", *outcome.packets, outcome.failed_flows);
  }
  fmt::print(
      "simulated in {:.2f} s after {:.2f} s of reading: {} events, {:.2f} million a second, "
      "{:.2f} GiB\n",
      outcome.run_s, outcome.read_s, outcome.run.events,
      static_cast<double>(outcome.run.events) / outcome.run_s / 1e6, outcome.memory_gib);
}

void simulate_trace(const EmulateSimulateOptions& options) {
  SimulationOutcome outcome;
  auto begin = std::chrono::steady_clock::now();
  const emulate::World world = world_of(options);
  outcome.read_s = seconds_since(begin);
  outcome.ranks = world.size();
  outcome.nodes = world.nodes();
  emulate::GraphRunOptions run_options;
  run_options.limit = parsed("--limit", base::parse_duration(options.limit));
  run_options.faults = troubles_of(options, world.size());
  run_options.keeps_times = !options.out.empty();
  std::optional<ResultLines> lines;
  if (!options.results.empty()) {
    lines.emplace(options.results, world);
    run_options.on_transfer = [&lines](const emulate::Transfer& transfer, base::Instant began,
                                       base::Instant ended) { lines->add(transfer, began, ended); };
  }
  begin = std::chrono::steady_clock::now();
  if (options.level == SimulationLevel::kFlows) {
    run_flows(options, world, run_options, outcome);
  } else {
    run_packets(options, world, run_options, outcome);
  }
  outcome.run_s = std::max(1e-9, seconds_since(begin));
  outcome.memory_gib = peak_gib();
  outcome.computing_share = computing_share_of(outcome.run);
  if (lines) {
    lines->finish();
  }
  if (!options.out.empty()) {
    write_output(options.out, emulate::timeline_page("simulation", world, outcome.run), "--out: ");
  }
  if (options.json) {
    fmt::print("{}\n", outcome_json(outcome).dump(2));
  } else {
    print_outcome(outcome);
  }
  throw_unless_ok(outcome.run.status);
}

void add_simulation_options(CLI::App& command, EmulateSimulateOptions& options) {
  command.add_option("--level", options.level, "flows, or packets for small worlds")
      ->transform(CLI::CheckedTransformer(std::map<std::string, SimulationLevel>{
          {"flows", SimulationLevel::kFlows}, {"packets", SimulationLevel::kPackets}}));
  command.add_option("--slow", options.slow, "RANK=FACTOR: its computing takes so much longer")
      ->allow_extra_args(false);
  command.add_option("--dead", options.dead, "RANK=TIME: it does nothing from then on")
      ->allow_extra_args(false);
  command.add_option("--limit", options.limit, "Limit of virtual time")->capture_default_str();
}

}  // namespace

void add_emulate_simulate(CLI::App& noun) {
  const auto options = std::make_shared<EmulateSimulateOptions>();
  CLI::App* command = noun.add_subcommand(
      "simulate", "A trace, or a model's step, on a network in virtual time: how long it takes");
  command->add_option(
      "trace", options->trace,
      "A trace: a file, a folder or a prefix; without one, a step of the model below");
  add_network_options(*command, options->network);
  add_simulation_options(*command, *options);
  command->add_option("--results", options->results,
                      "Write every transfer here as it ends, as CSV");
  command->add_option("--out", options->out, "Write a page with the timeline here");
  command->add_flag("--json", options->json, "Print JSON");
  add_llm_options(*command, options->model);
  command->footer(
      "A run that cannot go on says who waits for whom, and the exit code is 1.\n"
      "Examples:\n"
      "  spillway emulate simulate traces/llama --rate 25gbit --oversubscription 4\n"
      "  spillway emulate simulate --tensor 8 --data 128 --pipeline 8 --layers 96 --hidden 12288 "
      "--micro-batches 16 --node-ranks 8");
  command->callback([options] { simulate_trace(*options); });
}

}  // namespace spillway::cli
