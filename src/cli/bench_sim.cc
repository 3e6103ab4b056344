// SPDX-License-Identifier: Apache-2.0
//
// `spillway bench sim`: how many delivered data packets a second the simulator does on one core,
// and how that changes with the size of the network. Hosts run the shipped transport.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/version.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/text_table.h"
#include "sim/simulation.h"

namespace spillway::cli {
namespace {

struct BenchSimOptions {
  bool json = false;
  int repetitions = 3;
  std::vector<unsigned> hosts = {128, 1024};
  unsigned megabytes = 10;
};

struct BenchSimRow {
  unsigned hosts = 0;
  std::uint64_t packets = 0;  // delivered data packets
  std::uint64_t events = 0;
  double seconds = 0.0;
  double slowdown = 0.0;  // of the flows, against an ideal network

  double packets_per_second() const { return static_cast<double>(packets) / seconds; }
  double nanoseconds_per_packet() const { return seconds * 1e9 / static_cast<double>(packets); }
};

// Sixteen hosts to a leaf, sixteen spines: no oversubscription. Packets of 4 KB, as htsim's.
sim::Scenario permutation(const BenchSimOptions& options, unsigned hosts) {
  const std::string text = fmt::format(
      "limit 1s\n"
      "topology leaf-spine hosts={} leaves={} spines=16 rate=100gbit delay=1us\n"
      "switch mode=spillway queue=256k ecn=64k\n"
      "job protocol=spillway pattern=permutation bytes={}MB packet=4068 paths=16 report=16 "
      "burst=4 unsolicited=256k window-initial=512k delay-target=10us\n",
      hosts, std::max(1U, hosts / 16), options.megabytes);
  return value_or_throw(sim::parse_scenario(text));
}

// Time of this process, so that others on the machine do not count.
double cpu_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

BenchSimRow measure(const BenchSimOptions& options, unsigned hosts, Progress& progress) {
  const sim::Scenario scenario = permutation(options, hosts);
  BenchSimRow best;
  for (int i = 0; i < options.repetitions; ++i) {
    progress.step(fmt::format("{} hosts", hosts));
    const double start = cpu_seconds();
    const sim::ScenarioResult result = value_or_throw(sim::run_scenario(scenario));
    const double seconds = cpu_seconds() - start;
    if (!result.finished) {
      throw CommandError("the flows did not end within a simulated second");
    }
    if (i == 0 || seconds < best.seconds) {
      best = {.hosts = hosts,
              .packets = result.network.delivered_data,
              .events = result.events,
              .seconds = seconds,
              .slowdown = result.jobs[0].slowdown};
    }
  }
  return best;
}

void print_json(const BenchSimOptions& options, const std::vector<BenchSimRow>& rows) {
  nlohmann::json out = {{"version", base::kVersion},
                        {"flow_megabytes", options.megabytes},
                        {"rows", nlohmann::json::array()}};
  for (const BenchSimRow& row : rows) {
    out["rows"].push_back(
        {{"hosts", row.hosts},
         {"delivered_data_packets", row.packets},
         {"cpu_seconds", row.seconds},
         {"packets_per_s", row.packets_per_second()},
         {"ns_per_packet", row.nanoseconds_per_packet()},
         {"events_per_packet", static_cast<double>(row.events) / static_cast<double>(row.packets)},
         {"cost_of_first_row", row.nanoseconds_per_packet() / rows[0].nanoseconds_per_packet()},
         {"flows_slowdown", row.slowdown}});
  }
  fmt::print("{}\n", out.dump(2));
}

void print_table(const BenchSimOptions& options, const std::vector<BenchSimRow>& rows) {
  TextTable table({"hosts", "data packets", "packets/s", "ns/packet", "x first", "events/packet",
                   "flows x ideal"});
  for (const BenchSimRow& row : rows) {
    table.add_row(
        {fmt::format("{}", row.hosts), fmt::format("{}", row.packets),
         fmt::format("{:.0f}", row.packets_per_second()),
         fmt::format("{:.0f}", row.nanoseconds_per_packet()),
         fmt::format("{:.2f}", row.nanoseconds_per_packet() / rows[0].nanoseconds_per_packet()),
         fmt::format("{:.1f}", static_cast<double>(row.events) / static_cast<double>(row.packets)),
         fmt::format("{:.2f}", row.slowdown)});
  }
  fmt::print("permutation of {} MB flows, leaf-spine, 4 KB packets, one core, best of {}\n{}",
             options.megabytes, options.repetitions, table.to_string());
}

void run(const BenchSimOptions& options) {
  Progress progress(options.hosts.size() * static_cast<std::size_t>(options.repetitions));
  std::vector<BenchSimRow> rows;
  for (const unsigned hosts : options.hosts) {
    rows.push_back(measure(options, hosts, progress));
  }
  options.json ? print_json(options, rows) : print_table(options, rows);
}

}  // namespace

void add_bench_sim(CLI::App& bench) {
  CLI::App* verb =
      bench.add_subcommand("sim", "Delivered data packets a second in the simulator, on one core");
  const auto options = std::make_shared<BenchSimOptions>();
  verb->add_flag("--json", options->json, "Print JSON");
  verb->add_option("--hosts", options->hosts, "Sizes of the network, multiples of 16")
      ->check(CLI::Range(16U, 32768U))
      ->capture_default_str();
  verb->add_option("--megabytes", options->megabytes, "Size of each flow")
      ->check(CLI::Range(1U, 200U))
      ->capture_default_str();
  verb->add_option("--repetitions", options->repetitions, "Runs of each; the best counts")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  verb->footer(
      "Example:\n  spillway bench sim --json\n  spillway bench sim --hosts 128 --megabytes 1");
  verb->callback([options] { run(*options); });
}

}  // namespace spillway::cli
