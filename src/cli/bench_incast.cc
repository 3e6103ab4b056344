// SPDX-License-Identifier: Apache-2.0
//
// `spillway bench incast`: several hosts send to one at once, over an emulated network, by Spillway
// and by TCP, and as the simulator predicts it from the same scenario.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/version.h"
#include "cli/commands.h"
#include "cli/incast_rank.h"
#include "cli/lab_options.h"
#include "cli/progress.h"
#include "cli/text_table.h"
#include "lab/launcher.h"
#include "lab/link_setup.h"
#include "sim/results.h"
#include "sim/simulation.h"

namespace spillway::cli {
namespace {

constexpr const char* kSpillway = "spillway";
constexpr const char* kDefaultJob =
    "protocol=spillway pattern=incast bytes=4MB loss=1% delay-target=5ms report=32 burst=32";

struct BenchIncastOptions {
  NetworkArguments network;
  std::string job = kDefaultJob;
  std::vector<std::string> protocols{kSpillway, "cubic", "bbr"};
  std::uint32_t rounds = 20;
  bool json = false;
  // Of a rank inside the lab.
  std::string rank_folder;
  std::string rank_protocol;
};

// Times of one protocol, and what the messages of all rounds came to.
struct Measured {
  std::string protocol;
  sim::DurationSummary rounds;
  std::uint64_t messages = 0;
  std::uint64_t beyond_bound = 0;
  std::uint64_t packets = 0;
  std::uint64_t delivered = 0;
  std::uint64_t trimmed = 0;
};

struct BenchIncastResults {
  base::Duration ideal;
  std::vector<Measured> measured;
  sim::DurationSummary simulated;  // Spillway's rounds
};

// ------------------------------------------------------------------ the scenario

lab::LabOptions lab_of(const BenchIncastOptions& options) {
  NetworkArguments network = options.network;
  if (network.preset.empty() && network.scenario.empty()) {
    network.preset = "incast";
  }
  lab::LabOptions lab_options = lab_options_of(network);
  if (lab_options.scenario.jobs.empty()) {
    lab_options.scenario.jobs =
        value_or_throw(sim::parse_scenario(fmt::format("job {}\n", options.job))).jobs;
  }
  return lab_options;
}

// What the busiest host's link needs for all bytes, without headers.
base::Duration ideal_time(const sim::Scenario& scenario, const std::vector<sim::Flow>& flows) {
  const auto most = static_cast<std::int64_t>(sim::busiest_bytes(flows));
  return base::transmission_time(base::bytes(most), scenario.topology.rate);
}

// ------------------------------------------------------------------ in the lab

// A folder that ranks share, gone with this object.
class SharedFolder {
 public:
  SharedFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "spillway-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) {
      throw CommandError("cannot make a folder in " +
                         std::filesystem::temp_directory_path().string());
    }
    path_ = pattern;
  }
  ~SharedFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// This very command, as a rank.
std::vector<std::string> rank_command(const std::string& protocol, const SharedFolder& folder) {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) {
    words.push_back(word);
  }
  words.front() = std::filesystem::read_symlink("/proc/self/exe").string();
  words.insert(words.end(), {"--as-rank", protocol, "--rank-folder", folder.path().string()});
  return words;
}

Measured summarise_rounds(const std::string& protocol,
                          const std::vector<std::vector<FlowOutcome>>& rounds) {
  Measured measured;
  measured.protocol = protocol;
  std::vector<base::Duration> times;
  for (const std::vector<FlowOutcome>& round : rounds) {
    std::int64_t longest = 0;
    for (const FlowOutcome& outcome : round) {
      longest = std::max(longest, outcome.nanoseconds);
      ++measured.messages;
      measured.beyond_bound += outcome.within_bound() ? 0 : 1;
      measured.packets += outcome.packets;
      measured.delivered += outcome.delivered;
      measured.trimmed += outcome.trimmed;
    }
    times.push_back(base::nanoseconds(longest));
  }
  measured.rounds = sim::summarise(std::move(times));
  return measured;
}

Measured measure(const BenchIncastOptions& options, const lab::LabOptions& lab_options,
                 std::size_t flows, const std::string& protocol) {
  const SharedFolder folder;
  const std::size_t hosts =
      value_or_throw(lab::make_host_plan(lab_options.scenario, {.mtu = lab_options.mtu}))
          .hosts.size();
  lab::LabOptions quiet = lab_options;
  quiet.output.out = quiet.output.err;
  quiet.grace = base::seconds(1);
  const std::vector<lab::RankCommand> commands(hosts, {rank_command(protocol, folder), {}});
  const lab::LabOutcome outcome = value_or_throw(lab::run_lab(quiet, commands));
  if (outcome.worst_exit_code() != kExitOk) {
    throw CommandExit{outcome.worst_exit_code()};
  }
  const std::vector<std::vector<FlowOutcome>> rounds = read_rounds(folder.path(), flows);
  if (rounds.size() != options.rounds) {
    throw CommandError(
        fmt::format("{}: {} of {} rounds were measured", protocol, rounds.size(), options.rounds));
  }
  return summarise_rounds(protocol, rounds);
}

// ------------------------------------------------------------------ in the simulator

sim::DurationSummary simulate(sim::Scenario scenario, std::uint32_t rounds) {
  scenario.jobs.resize(1);
  std::vector<base::Duration> times;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    scenario.seed += 1;
    const base::Result<sim::ScenarioResult> result = sim::run_scenario(scenario);
    if (!result.ok()) {
      throw CommandError(result.status());
    }
    times.push_back(result->jobs.front().makespan);
  }
  return sim::summarise(std::move(times));
}

// ------------------------------------------------------------------ output

double milliseconds_of(base::Duration duration) {
  return static_cast<double>(duration.count()) * 1e-6;
}

double ratio(base::Duration duration, base::Duration ideal) {
  return static_cast<double>(duration.count()) / static_cast<double>(ideal.count());
}

nlohmann::json times_json(const sim::DurationSummary& times, base::Duration ideal) {
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
  for (const Measured& measured : results.measured) {
    nlohmann::json row = times_json(measured.rounds, results.ideal);
    row["protocol"] = measured.protocol;
    row["messages"] = measured.messages;
    row["beyond_bound"] = measured.beyond_bound;
    row["packets"] = measured.packets;
    row["missing"] = measured.packets - measured.delivered;
    row["trimmed"] = measured.trimmed;
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
  const auto add = [&](const std::string& what, const sim::DurationSummary& times,
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
  for (const Measured& measured : results.measured) {
    add(measured.protocol, measured.rounds,
        {share(measured.trimmed, measured.packets),
         share(measured.packets - measured.delivered, measured.packets),
         fmt::format("{} of {}", measured.beyond_bound, measured.messages)});
  }
  add("spillway, simulated", results.simulated, {"", "", ""});
  fmt::print("{}{} rounds each; the ideal is {:.1f} ms: the busiest link's time for all bytes\n",
             table.to_string(), options.rounds, milliseconds_of(results.ideal));
}

void run(const BenchIncastOptions& options) {
  const lab::LabOptions lab_options = lab_of(options);
  if (!options.rank_protocol.empty()) {
    run_incast_rank(lab_options.scenario,
                    {options.rank_protocol, options.rounds, options.rank_folder});
    return;
  }
  const std::vector<sim::Flow> flows = flows_of(lab_options.scenario);
  for (const std::string& protocol : options.protocols) {
    if (protocol != kSpillway) {
      throw_unless_ok(lab::check_congestion_control(protocol));
    }
  }
  BenchIncastResults results;
  results.ideal = ideal_time(lab_options.scenario, flows);
  Progress progress(options.protocols.size() + 1);
  for (const std::string& protocol : options.protocols) {
    progress.step(protocol);
    results.measured.push_back(measure(options, lab_options, flows.size(), protocol));
  }
  progress.step("simulator");
  results.simulated = simulate(lab_options.scenario, options.rounds);
  options.json ? print_json(options, results) : print_table(options, results);
}

}  // namespace

void add_bench_incast(CLI::App& bench) {
  const auto options = std::make_shared<BenchIncastOptions>();
  CLI::App* verb = bench.add_subcommand(
      "incast", "Hosts that send to one at once over an emulated network: Spillway beside TCP");
  add_network_options(*verb, options->network);
  verb->add_option("--job", options->job,
                   "What is sent, as a job line of a scenario, where the scenario has none")
      ->capture_default_str();
  verb->add_option("--protocols", options->protocols,
                   "spillway, or TCP congestion controls of this kernel")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--rounds", options->rounds, "Of each protocol")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  verb->add_flag("--json", options->json, "Print JSON");
  verb->add_option("--as-rank", options->rank_protocol)->group("");
  verb->add_option("--rank-folder", options->rank_folder)->group("");
  verb->footer(
      "A round ends when its last message has arrived. The simulator runs the same scenario.\n"
      "Examples:\n"
      "  spillway bench incast\n"
      "  spillway bench incast --loss 1% --rounds 50 --json\n"
      "  spillway bench incast --background \"from=host1 to=host0 protocol=udp rate=50%\"");
  verb->callback([options] { run(*options); });
}

}  // namespace spillway::cli
