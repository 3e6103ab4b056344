// SPDX-License-Identifier: Apache-2.0
//
// `spillway bench`, and its verb `sim`: data packets per second that the simulator delivers on one
// core, for networks of various sizes. Hosts run the production transport.
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <memory>
#include <vector>

#include "base/version.h"
#include "tools/bench/progress.h"
#include "tools/bench/sim_speed.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/cli/output.h"

namespace spillway::cli {
namespace {

struct BenchSimOptions {
  bool json = false;
  int repetitions = 3;
  std::vector<unsigned> hosts = {128, 1024};
  unsigned megabytes = 10;
};

void print_json(const BenchSimOptions& options, const std::vector<bench::SimSpeed>& rows) {
  nlohmann::json out = {{"version", base::kVersion},
                        {"flow_megabytes", options.megabytes},
                        {"rows", nlohmann::json::array()}};
  for (const bench::SimSpeed& row : rows) {
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

void print_table(const BenchSimOptions& options, const std::vector<bench::SimSpeed>& rows) {
  TextTable table({"hosts", "data packets", "packets/s", "ns/packet", "x first", "events/packet",
                   "flows x ideal"});
  for (const bench::SimSpeed& row : rows) {
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
  bench::Progress progress(options.hosts.size() * static_cast<std::size_t>(options.repetitions));
  std::vector<bench::SimSpeed> rows;
  for (const unsigned hosts : options.hosts) {
    rows.push_back(bench::measure_sim_speed(
        {.hosts = hosts, .megabytes = options.megabytes, .repetitions = options.repetitions},
        progress));
  }
  options.json ? print_json(options, rows) : print_table(options, rows);
}

void add_bench_sim(CLI::App& bench) {
  CLI::App* verb = bench.add_subcommand(
      "sim", "Data packets per second that the simulator delivers on one core");
  const auto options = std::make_shared<BenchSimOptions>();
  verb->add_flag("--json", options->json, "Print JSON");
  verb->add_option("--hosts", options->hosts, "Sizes of the network, multiples of 16")
      ->check(whole_number(16, 32768))
      ->capture_default_str();
  verb->add_option("--megabytes", options->megabytes, "Size of each flow")
      ->check(whole_number(1, 200))
      ->capture_default_str();
  verb->add_option("--repetitions", options->repetitions, "Runs of each; the best counts")
      ->check(whole_number(1, 100))
      ->capture_default_str();
  verb->footer(
      "Examples:\n  spillway bench sim --json\n  spillway bench sim --hosts 128 --megabytes 1");
  verb->callback([options] { run(*options); });
}

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App* noun =
      app.add_subcommand("bench", "Measure, beside a limit or a rival in the same run");
  noun->require_subcommand(1);
  noun->footer("Examples:\n  spillway bench codec --quick\n  spillway bench transport");
  add_bench_allreduce(*noun);
  add_bench_codec(*noun);
  add_bench_incast(*noun);
  add_bench_sim(*noun);
  add_bench_switch(*noun);
  add_bench_transport(*noun);
}

}  // namespace spillway::cli
