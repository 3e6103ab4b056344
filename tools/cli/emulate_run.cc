// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/environment.h"
#include "base/text.h"
#include "comm/rendezvous/rendezvous.h"
#include "emulate/replay.h"
#include "emulate/trace/lint.h"
#include "emulate/trace/reader.h"
#include "launch/launch.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/cli/emulate_options.h"
#include "tools/cli/output.h"

namespace spillway::cli {
namespace {

// `spillway emulate run`: replays one or several ranks of a trace in this process, as real traffic.

using nlohmann::json;

struct EmulateRunOptions {
  std::string trace;
  EmulateLabOptions lab;
  std::uint32_t repeat = 1;
  std::optional<std::uint8_t> bits;
  std::string transport;
  std::string patience = "60s";
  std::vector<std::string> slow;
  std::vector<std::string> dead;
  std::uint32_t ranks_here = 1;
  std::vector<std::size_t> pending;  // with --lateness
  std::size_t waits = 2000;
  bool json = false;
};

constexpr std::uint32_t kMostRanksHere = 1024;
constexpr unsigned kThreadsOfOne = 1;  // per communicator, if a process has several ranks

// One rank's figures for one replay. Sent between ranks as raw memory, so all must be of one build.
struct RankFigures {
  std::int64_t length_ns = 0;
  std::int64_t computing_ns = 0;
  std::int64_t late_p50_ns = 0;
  std::int64_t late_p99_ns = 0;
  std::int64_t cpu_ns = 0;
  std::uint64_t operations = 0;
  std::uint64_t bytes = 0;
};

base::Duration run_patience(const EmulateRunOptions& options) {
  const base::Result<base::Duration> patience = base::parse_duration(options.patience);
  if (!patience.ok() || *patience < base::milliseconds(100)) {
    throw CLI::ValidationError("--patience", "must be a time of 100ms or more");
  }
  return *patience;
}

double slowness_of(const EmulateRunOptions& options, std::uint32_t rank) {
  for (const std::string& text : options.slow) {
    const auto [which, factor] = rank_and_factor("--slow", text);
    if (which == rank) {
      return factor;
    }
  }
  return 1.0;
}

// When the rank dies, counted from the start of the replay; empty if it does not.
std::optional<base::Duration> death_of(const EmulateRunOptions& options, std::uint32_t rank) {
  for (const std::string& text : options.dead) {
    const auto [which, time] = rank_and("--dead", text);
    const base::Duration after = parsed("--dead", base::parse_duration(time));
    if (which == rank) {
      return after;
    }
  }
  return std::nullopt;
}

// Ends the process without notice, as if killed.
void die_after(base::Duration after) {
  std::thread([after] {
    std::this_thread::sleep_for(std::chrono::nanoseconds(after.count()));
    ::_exit(kExitFailure);
  }).detach();
}

std::int64_t cpu_time_ns() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto nanoseconds = [](const timeval& time) {
    return std::int64_t{time.tv_sec} * 1'000'000'000 + std::int64_t{time.tv_usec} * 1'000;
  };
  return nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime);
}

// Reads and lints the trace before any rank waits; refuses one that cannot be replayed.
emulate::World sound_world(const std::string& trace) {
  emulate::World world = value_or_throw(emulate::read_world(trace, {}));
  const emulate::LintReport report = emulate::lint(world);
  for (const emulate::Finding& finding : report.findings) {
    if (emulate::severity_of(finding.kind) == emulate::Severity::kError) {
      throw CommandError(
          fmt::format("{} cannot be replayed: {}: {}; `spillway emulate show` says more", trace,
                      emulate::finding_kind_name(finding.kind), finding.text));
    }
  }
  return world;
}

// ------------------------------------------------------------------ among ranks

void call(comm::Communicator& everybody, collective::Operation operation, base::Duration patience) {
  operation.timeout = patience;
  const auto request = value_or_throw(everybody.submit(operation));
  throw_unless_ok(request->wait(std::nullopt).value_or(base::Status()));
}

void barrier(comm::Communicator& everybody, base::Duration patience) {
  collective::Operation operation;
  operation.kind = collective::Kind::kBarrier;
  call(everybody, operation, patience);
}

std::vector<RankFigures> gather_figures(comm::Communicator& everybody, const RankFigures& own,
                                        base::Duration patience) {
  std::vector<RankFigures> all(everybody.world());
  collective::Operation operation;
  operation.kind = collective::Kind::kAllGather;
  operation.type = collective::DataType::kUint8;
  operation.count = sizeof(RankFigures);
  operation.input = &own;
  operation.output = all.data();
  call(everybody, operation, patience);
  return all;
}

RankFigures replay_once(const EmulateRunOptions& options, const emulate::World& world,
                        const emulate::GroupCommunicators& groups, base::Duration patience) {
  const std::uint32_t rank = groups.all_ranks().rank();
  emulate::Replay replay(
      world, rank, groups,
      {.slowness = slowness_of(options, rank), .patience = patience, .precision = options.bits});
  barrier(groups.all_ranks(), patience);
  if (const std::optional<base::Duration> death = death_of(options, rank)) {
    die_after(*death);
  }
  const std::int64_t cpu = cpu_time_ns();
  const emulate::ReplayReport report = value_or_throw(replay.run());
  return {.length_ns = report.length.count(),
          .computing_ns = report.computing.count(),
          .late_p50_ns = report.lateness.p50.count(),
          .late_p99_ns = report.lateness.p99.count(),
          .cpu_ns = (cpu_time_ns() - cpu) / options.ranks_here,
          .operations = report.operations,
          .bytes = report.bytes};
}

// ------------------------------------------------------------------ what is printed

json figures_json(const RankFigures& rank) {
  return {{"time_us", static_cast<double>(rank.length_ns) / 1e3},
          {"computing_us", static_cast<double>(rank.computing_ns) / 1e3},
          {"late_p50_us", static_cast<double>(rank.late_p50_ns) / 1e3},
          {"late_p99_us", static_cast<double>(rank.late_p99_ns) / 1e3},
          {"cpu_s", static_cast<double>(rank.cpu_ns) / 1e9},
          {"operations", rank.operations},
          {"bytes", rank.bytes}};
}

double longest_us(const std::vector<RankFigures>& ranks) {
  std::int64_t longest = 0;
  for (const RankFigures& rank : ranks) {
    longest = std::max(longest, rank.length_ns);
  }
  return static_cast<double>(longest) / 1e3;
}

json replays_json(const std::vector<std::vector<RankFigures>>& replays) {
  json list = json::array();
  for (const std::vector<RankFigures>& ranks : replays) {
    json figures = json::array();
    for (const RankFigures& rank : ranks) {
      figures.push_back(figures_json(rank));
    }
    list.push_back({{"time_us", longest_us(ranks)}, {"ranks", figures}});
  }
  return {{"replays", list}};
}

void print_replay(const std::vector<RankFigures>& ranks) {
  TextTable table(
      {"rank", "ms", "computing, ms", "operations", "bytes", "late, us: median", "p99", "CPU, s"});
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankFigures& figures = ranks[rank];
    const auto millis = [](std::int64_t nanoseconds) {
      return fmt::format("{:.3f}", static_cast<double>(nanoseconds) / 1e6);
    };
    const auto micros = [](std::int64_t nanoseconds) {
      return fmt::format("{:.1f}", static_cast<double>(nanoseconds) / 1e3);
    };
    table.add_row({std::to_string(rank), millis(figures.length_ns), millis(figures.computing_ns),
                   std::to_string(figures.operations), std::to_string(figures.bytes),
                   micros(figures.late_p50_ns), micros(figures.late_p99_ns),
                   fmt::format("{:.3f}", static_cast<double>(figures.cpu_ns) / 1e9)});
  }
  fmt::print("{} ranks: {:.3f} ms\n{}", ranks.size(), longest_us(ranks) / 1000.0,
             table.to_string());
}

// ------------------------------------------------------------------ the run

// Becomes `spillway lab run` with the same command at every host.
[[noreturn]] void start_lab(const EmulateRunOptions& options, std::uint32_t hosts) {
  std::vector<std::string> words = {own_program(),
                                    "emulate",
                                    "run",
                                    "--trace",
                                    options.trace,
                                    "--repeat",
                                    std::to_string(options.repeat),
                                    "--patience",
                                    options.patience,
                                    "--ranks-here",
                                    std::to_string(options.ranks_here)};
  if (options.bits) {
    words.insert(words.end(), {"--bits", std::to_string(*options.bits)});
  }
  if (!options.transport.empty()) {
    words.insert(words.end(), {"--transport", options.transport});
  }
  for (const std::string& slow : options.slow) {
    words.insert(words.end(), {"--slow", slow});
  }
  for (const std::string& dead : options.dead) {
    words.insert(words.end(), {"--dead", dead});
  }
  if (options.json) {
    words.emplace_back("--json");
  }
  run_command(lab_command(options.lab, hosts, words));
}

void run_rank(const EmulateRunOptions& options, const emulate::World& world,
              const comm::CommunicatorConfig& config, base::Duration patience) {
  const auto everybody = value_or_throw(comm::Communicator::create(config));
  const emulate::GroupCommunicators groups =
      value_or_throw(emulate::GroupCommunicators::make(world, *everybody, patience));
  std::vector<std::vector<RankFigures>> replays;
  for (std::uint32_t i = 0; i < options.repeat; ++i) {
    const RankFigures own = replay_once(options, world, groups, patience);
    replays.push_back(gather_figures(*everybody, own, patience));
    if (everybody->rank() == 0 && !options.json) {
      print_replay(replays.back());
    }
  }
  if (everybody->rank() == 0 && options.json) {
    fmt::print("{}\n", replays_json(replays).dump(2));
  }
}

// Launched processes meet through their launcher, and the first makes an id for all ranks.
struct RanksHere {
  comm::UniqueId id;
  std::uint32_t first = 0;
};

RanksHere meet(const EmulateRunOptions& options, const emulate::World& world, bool is_launched,
               base::Duration patience) {
  const auto made = [] { return value_or_throw(comm::create_reachable_unique_id()); };
  if (!is_launched) {
    return {made(), 0};
  }
  const auto processes = value_or_throw(comm::Communicator::create({}));
  if (processes->world() * options.ranks_here != world.size()) {
    throw CommandError(fmt::format("{} processes with {} ranks each are not the {} of the trace",
                                   processes->world(), options.ranks_here, world.size()));
  }
  RanksHere here{processes->rank() == 0 ? made() : comm::UniqueId{},
                 processes->rank() * options.ranks_here};
  collective::Operation operation;
  operation.kind = collective::Kind::kBroadcast;
  operation.type = collective::DataType::kUint8;
  operation.count = here.id.bytes.size();
  operation.input = operation.output = here.id.bytes.data();
  call(*processes, operation, patience);
  return here;
}

void run_ranks(const EmulateRunOptions& options, const emulate::World& world, const RanksHere& here,
               base::Duration patience) {
  std::vector<std::exception_ptr> failures(options.ranks_here);
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < options.ranks_here; ++i) {
    threads.emplace_back([&, i] {
      try {
        comm::CommunicatorConfig config;
        config.id = here.id;
        config.member = {here.first + i, world.size()};
        config.threads = kThreadsOfOne;
        run_rank(options, world, config, patience);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) {
      std::rethrow_exception(failure);
    }
  }
}

void run_trace(const EmulateRunOptions& options) {
  const base::Duration patience = run_patience(options);
  const emulate::World world = sound_world(options.trace);
  check_ranks("--slow", options.slow, world.size());
  check_ranks("--dead", options.dead, world.size());
  if (world.size() % options.ranks_here != 0) {
    throw CLI::ValidationError("--ranks-here", fmt::format("{} ranks cannot be {} in each process",
                                                           world.size(), options.ranks_here));
  }
  if (!options.lab.preset.empty()) {
    start_lab(options, world.size() / options.ranks_here);
  }
  const bool is_launched = launch::is_launched(base::Environment::of_process());
  if (world.size() > options.ranks_here && !is_launched) {
    throw CommandError(fmt::format(
        "no launcher started this as one of {} ranks: say --preset NAME for a lab, --ranks-here {} "
        "for all of them in this process, or use one of `spillway lab run -- ...`, mpirun, srun "
        "and torchrun --no-python",
        world.size(), world.size()));
  }
  if (!options.transport.empty()) {
    setenv("SPILLWAY_CARRIER", options.transport == "tcp" ? "tcp" : "udp", 1);
  }
  if (options.ranks_here == 1) {
    run_rank(options, world, {}, patience);
  } else {
    run_ranks(options, world, meet(options, world, is_launched, patience), patience);
  }
}

// ------------------------------------------------------------------ lateness of waits

void measure_lateness(const EmulateRunOptions& options) {
  TextTable table({"pending", "waits", "late, us: median", "p99", "most"});
  json rows = json::array();
  for (const std::size_t pending : options.pending) {
    const base::DurationSummary late =
        base::summarise(emulate::measure_lateness(pending, options.waits, base::microseconds(200)));
    table.add_row({std::to_string(pending), std::to_string(late.count),
                   fmt::format("{:.1f}", base::microseconds_of(late.p50)),
                   fmt::format("{:.1f}", base::microseconds_of(late.p99)),
                   fmt::format("{:.1f}", base::microseconds_of(late.max))});
    rows.push_back({{"pending", pending},
                    {"late_p50_us", base::microseconds_of(late.p50)},
                    {"late_p99_us", base::microseconds_of(late.p99)}});
  }
  if (options.json) {
    fmt::print("{}\n", rows.dump(2));
  } else {
    fmt::print("{}", table.to_string());
  }
}

void run_or_measure(const EmulateRunOptions& options) {
  if (!options.pending.empty()) {
    measure_lateness(options);
    return;
  }
  if (options.trace.empty()) {
    throw CLI::RequiredError("--trace (or --lateness)");
  }
  run_trace(options);
}

}  // namespace

void add_emulate_run(CLI::App& noun) {
  const auto options = std::make_shared<EmulateRunOptions>();
  CLI::App* command = noun.add_subcommand(
      "run", "This process as one rank of a trace: waits for computing, real communication");
  CLI::Option* trace =
      command->add_option("--trace", options->trace, "A file, a folder or a prefix");
  add_lab_options(*command, options->lab, "Start all ranks in");
  command->add_option("--repeat", options->repeat, "Replays, one after another")
      ->capture_default_str()
      ->check(whole_number(1, 1'000'000));
  command
      ->add_option("--bits", options->bits,
                   "Bits per value of tolerant all-reduces; without it they are exact")
      ->check(whole_number(1, 32));
  command
      ->add_option("--transport", options->transport,
                   "spillway: over UDP; tcp: the same messages over TCP")
      ->check(CLI::IsMember({"spillway", "tcp"}));
  command->add_option("--patience", options->patience, "Limit of every wait for other ranks")
      ->capture_default_str();
  command->add_option("--slow", options->slow, "RANK=FACTOR: its computing takes so much longer")
      ->allow_extra_args(false);
  command->add_option("--dead", options->dead, "RANK=TIME: its process dies then, without a word")
      ->allow_extra_args(false);
  command
      ->add_option("--ranks-here", options->ranks_here,
                   "Ranks that this process is, one behind the other; each has threads of its own")
      ->capture_default_str()
      ->check(whole_number(1, kMostRanksHere));
  CLI::Option* lateness =
      command
          ->add_option("--lateness", options->pending,
                       "Instead of a replay: measure how late this machine is with waits, while so "
                       "many others are pending")
          ->check(whole_number(0, 10'000'000))
          ->excludes(trace);
  command->add_option("--waits", options->waits, "With --lateness: waits to measure")
      ->needs(lateness)
      ->capture_default_str()
      ->check(whole_number(1, 1'000'000));
  command->add_flag("--json", options->json, "Rank 0 prints JSON");
  command->footer(
      "Examples:\n"
      "  spillway emulate run --trace traces/small --preset congested\n"
      "  spillway emulate run --trace traces/small --ranks-here 8\n"
      "  mpirun -n 8 spillway emulate run --trace traces/small\n"
      "  spillway emulate run --lateness 10 100000");
  command->callback([options] { run_or_measure(*options); });
}

}  // namespace spillway::cli
