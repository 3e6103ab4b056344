// SPDX-License-Identifier: Apache-2.0
//
// `spillway bench transport-core`: packets a second through the transport's state machines.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/version.h"
#include "cli/commands.h"
#include "cli/text_table.h"
#include "cli/transport_speed.h"

namespace spillway::cli {
namespace {

struct BenchTransportCoreOptions {
  bool json = false;
  bool quick = false;
};

void print_json(const TransportSpeedResults& results) {
  nlohmann::json out = {{"version", base::kVersion},
                        {"memcpy_gb_per_s", results.memcpy_gigabytes_per_second},
                        {"rows", nlohmann::json::array()}};
  for (const TransportSpeed& row : results.rows) {
    out["rows"].push_back({{"what", row.what},
                           {"packets_per_s", row.packets_per_second},
                           {"control_per_data_packet", row.control_share}});
  }
  fmt::print("{}\n", out.dump(2));
}

void print_table(const TransportSpeedResults& results) {
  TextTable table({"one core, no I/O", "million packets/s", "Gb/s of 1460 B", "control/data"});
  for (const TransportSpeed& row : results.rows) {
    table.add_row({row.what, fmt::format("{:.2f}", row.packets_per_second * 1e-6),
                   fmt::format("{:.1f}", row.packets_per_second * 1460 * 8e-9),
                   fmt::format("{:.3f}", row.control_share)});
  }
  fmt::print("{}memcpy of the same packets: {:.1f} GB/s\n", table.to_string(),
             results.memcpy_gigabytes_per_second);
}

void run(const BenchTransportCoreOptions& options) {
  TransportSpeedOptions measured;
  if (options.quick) {
    measured = {.messages = 8, .repetitions = 1};
  }
  Progress progress(transport_speed_steps());
  const TransportSpeedResults results = measure_transport_speed(measured, progress);
  options.json ? print_json(results) : print_table(results);
}

}  // namespace

void add_bench_transport_core(CLI::App& bench) {
  CLI::App* verb = bench.add_subcommand(
      "transport-core", "Packets a second through the transport's state machines, without I/O");
  const auto options = std::make_shared<BenchTransportCoreOptions>();
  verb->add_flag("--json", options->json, "Print JSON");
  verb->add_flag("--quick", options->quick, "A few hundredths of the work, for a first look");
  verb->footer("Example:\n  spillway bench transport-core --json");
  verb->callback([options] { run(*options); });
}

}  // namespace spillway::cli
