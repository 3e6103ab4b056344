// SPDX-License-Identifier: Apache-2.0
//
// `spillway bench incast`: several hosts send to one at once over an emulated network, with
// Spillway and with TCP, beside the simulator's prediction for the same scenario.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/version.h"
#include "lab/calibration.h"
#include "lab/network/links.h"
#include "tools/bench/incast/rounds.h"
#include "tools/bench/progress.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/cli/lab_command.h"
#include "tools/cli/output.h"

namespace spillway::cli {
namespace {

constexpr const char* kSpillway = "spillway";
constexpr const char* kDefaultJob =
    "protocol=spillway pattern=incast bytes=4MB loss-bound=1% delay-target=5ms report=32 burst=32";

struct BenchIncastOptions {
  NetworkOptions network;
  std::string job = kDefaultJob;
  std::vector<std::string> protocols{kSpillway, "cubic", "bbr"};
  std::uint32_t rounds = 20;
  bool json = false;
  // Set for a rank inside the lab.
  std::string rank_folder;
  std::string rank_protocol;
};

struct BenchIncastResults {
  base::Duration ideal;
  std::vector<bench::IncastTimes> measured;
  base::DurationSummary simulated;  // Spillway's rounds
};

// ------------------------------------------------------------------ the scenario

lab::LabOptions lab_of(const BenchIncastOptions& options) {
  NetworkOptions network = options.network;
  if (network.preset.empty() && network.scenario.empty()) {
    network.preset = "incast";
  }
  if (!options.rank_protocol.empty()) {
    network.tcp.clear();  // checked before; a rank's namespace need not list what is available
  }
  lab::LabOptions lab_options = lab_options_of(network);
  if (lab_options.scenario.jobs.empty()) {
    lab_options.scenario.jobs =
        parsed("--job", scenario::parse_scenario(fmt::format("job {}\n", options.job))).jobs;
  }
  return lab_options;
}

// ------------------------------------------------------------------ output

double milliseconds_of(base::Duration duration) {
  return static_cast<double>(duration.count()) * 1e-6;
}

double ratio(base::Duration duration, base::Duration ideal) {
  return static_cast<double>(duration.count()) / static_cast<double>(ideal.count());
}

nlohmann::json times_json(const base::DurationSummary& times, base::Duration ideal) {
  return {{"p50_ms", milliseconds_of(times.p50)},    {"p99_ms", milliseconds_of(times.p99)},
          {"max_ms", milliseconds_of(times.max)},    {"p50_of_ideal", ratio(times.p50, ideal)},
          {"p99_of_ideal", ratio(times.p99, ideal)}, {"max_of_ideal", ratio(times.max, ideal)}};
}

void print_json(const BenchIncastOptions& options, const BenchIncastResults& results) {
  nlohmann::json out = {{"version", base::kVersion},
                        {"rounds", options.rounds},
                        {"ideal_ms", milliseconds_of(results.ideal)},
                        {"simulated", times_json(results.simulated, results.ideal)},
                        {"protocols", nlohmann::json::array()}};
  for (const bench::IncastTimes& measured : results.measured) {
    nlohmann::json row = times_json(measured.rounds, results.ideal);
    row["protocol"] = measured.protocol;
    row["messages"] = measured.messages;
    row["beyond_bound"] = measured.beyond_bound;
    row["packets"] = measured.packets;
    row["missing"] = measured.packets - measured.delivered;
    row["trimmed"] = measured.trimmed;
    row["late"] = {{"mean_us", measured.pace.mean_late_us},
                   {"limit_us", measured.pace.limit_us},
                   {"missed_frames", measured.pace.missed}};
    out["protocols"].push_back(row);
  }
  fmt::print("{}\n", out.dump(2));
}

std::string share(std::uint64_t part, std::uint64_t all) {
  return all == 0 ? "-"
                  : fmt::format("{:.2f} %",
                                100.0 * static_cast<double>(part) / static_cast<double>(all));
}

void print_table(const BenchIncastOptions& options, const BenchIncastResults& results) {
  TextTable table({"times in ms", "p50", "p99", "max", "p50 / ideal", "p99 / ideal", "trimmed",
                   "missing", "beyond bound"});
  const auto add = [&](const std::string& what, const base::DurationSummary& times,
                       std::vector<std::string> rest) {
    std::vector<std::string> cells{what,
                                   fmt::format("{:.1f}", milliseconds_of(times.p50)),
                                   fmt::format("{:.1f}", milliseconds_of(times.p99)),
                                   fmt::format("{:.1f}", milliseconds_of(times.max)),
                                   fmt::format("{:.2f}", ratio(times.p50, results.ideal)),
                                   fmt::format("{:.2f}", ratio(times.p99, results.ideal))};
    cells.insert(cells.end(), rest.begin(), rest.end());
    table.add_row(cells);
  };
  for (const bench::IncastTimes& measured : results.measured) {
    add(measured.protocol, measured.rounds,
        {share(measured.trimmed, measured.packets),
         share(measured.packets - measured.delivered, measured.packets),
         fmt::format("{} of {}", measured.beyond_bound, measured.messages)});
  }
  add("spillway, simulated", results.simulated, {"", "", ""});
  fmt::print("{}{} rounds each; the ideal is {:.1f} ms: the busiest link's time for all bytes\n",
             table.to_string(), options.rounds, milliseconds_of(results.ideal));
}

// Rounds of a late lab measure this machine. With --allow-late, and on loopback, which has no
// trial, they count, and a line says that they were late.
void check_pace(const BenchIncastOptions& options, const lab::LabOptions& lab_options,
                bench::IncastTimes& measured) {
  lab::Pace& pace = measured.pace;
  if (pace.kept_up()) {
    return;
  }
  if (!pace.fabric_kept_up()) {
    pace.remedy = remedy_for(options.network, lab_options.scenario, pace);
  }
  const std::string late = fmt::format("{}: {}", measured.protocol, lab::pace_sentence(pace));
  const bool counts = options.network.allow_late || !value_or_throw(lab::can_be_late(lab_options));
  if (!pace.fabric_kept_up() && !counts) {
    throw CommandError(late);
  }
  fmt::print(stderr, "spillway: {}\n", late);
}

void run(const BenchIncastOptions& options) {
  lab::LabOptions lab_options = lab_of(options);
  if (!options.rank_protocol.empty()) {
    bench::run_incast_rank(lab_options.scenario,
                           {options.rank_protocol, options.rounds, options.rank_folder});
    return;
  }
  const std::vector<scenario::Flow> flows = bench::flows_of(lab_options.scenario);
  for (const std::string& protocol : options.protocols) {
    if (protocol != kSpillway) {
      check_option("--protocols", lab::check_congestion_control(protocol));
    }
  }
  lab_options = on_time(std::move(lab_options), options.network);
  BenchIncastResults results;
  results.ideal = bench::ideal_incast_time(lab_options.scenario, flows);
  bench::Progress progress(options.protocols.size() + 1);
  for (const std::string& protocol : options.protocols) {
    progress.step(protocol);
    results.measured.push_back(
        bench::measure_incast(lab_options, flows.size(), protocol, options.rounds));
    check_pace(options, lab_options, results.measured.back());
  }
  progress.step("simulator");
  results.simulated = bench::simulate_incast(lab_options.scenario, options.rounds);
  options.json ? print_json(options, results) : print_table(options, results);
}

}  // namespace

void add_bench_incast(CLI::App& bench) {
  const auto options = std::make_shared<BenchIncastOptions>();
  CLI::App* verb = bench.add_subcommand(
      "incast", "Hosts that send to one at once over an emulated network: Spillway beside TCP");
  add_network_options(*verb, options->network);
  verb->add_option("--job", options->job,
                   "Traffic, as a job line of a scenario, where the scenario has none")
      ->capture_default_str();
  verb->add_option("--protocols", options->protocols,
                   "spillway, or TCP congestion controls of this kernel")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--rounds", options->rounds, "Number of rounds of each protocol")
      ->check(whole_number(1, 10000))
      ->capture_default_str();
  verb->add_flag("--json", options->json, "Print JSON");
  verb->add_option("--as-rank", options->rank_protocol)->group("");
  verb->add_option("--rank-folder", options->rank_folder)->group("");
  verb->footer(
      "A round ends when its last message has arrived. The simulator runs the same scenario.\n"
      "A trial checks first whether this machine emulates the network on time. If not, time is\n"
      "slowed down, or the command fails if --rate was given. It also fails if the lab is late\n"
      "afterwards. --allow-late skips both checks.\n"
      "Examples:\n"
      "  spillway bench incast\n"
      "  spillway bench incast --loss 1% --rounds 50 --json\n"
      "  spillway bench incast --background \"from=host1 to=host0 protocol=udp rate=50%\"");
  verb->callback([options] { run(*options); });
}

}  // namespace spillway::cli
