// SPDX-License-Identifier: Apache-2.0
//
// `spillway bench checks`: the cost of packet checks, beside CRC32C in the same run.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/version.h"
#include "tools/bench/checks/check_layout.h"
#include "tools/bench/checks/check_speed.h"
#include "tools/bench/progress.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/cli/text_table.h"
#include "wire/packet.h"

namespace spillway::cli {
namespace {

struct BenchChecksOptions {
  bool json = false;
  bench::CheckSpeedOptions speed;
};

void print_checks_json(const std::vector<bench::CheckSpeed>& rows) {
  nlohmann::json out = {{"version", base::kVersion}, {"rows", nlohmann::json::array()}};
  for (const bench::CheckSpeed& row : rows) {
    out["rows"].push_back({{"check", row.check},
                           {"packet_bytes", row.packet_bytes},
                           {"ns_per_packet", row.nanoseconds_per_packet},
                           {"gb_per_s", row.gigabytes_per_second()},
                           {"of_crc32c", row.of_crc32c}});
  }
  fmt::print("{}\n", out.dump(2));
}

void print_checks_table(const std::vector<bench::CheckSpeed>& rows) {
  TextTable table({"copy and", "packet", "ns/packet", "GB/s", "x crc32c"});
  for (const bench::CheckSpeed& row : rows) {
    table.add_row({row.check, fmt::format("{}", row.packet_bytes),
                   fmt::format("{:.0f}", row.nanoseconds_per_packet),
                   fmt::format("{:.2f}", row.gigabytes_per_second()),
                   fmt::format("{:.2f}", row.of_crc32c)});
  }
  fmt::print("{}", table.to_string());
}

void run_checks(const BenchChecksOptions& options) {
  std::vector<bench::CheckSpeed> rows;
  {
    bench::Progress progress(bench::check_speed_steps(options.speed));
    rows = bench::measure_check_speed(options.speed, progress);
  }
  options.json ? print_checks_json(rows) : print_checks_table(rows);
}

}  // namespace

void add_bench_checks(CLI::App& bench) {
  CLI::App* verb =
      bench.add_subcommand("checks", "Checks of packets that are being copied, beside CRC32C");
  const auto options = std::make_shared<BenchChecksOptions>();
  verb->add_flag("--json", options->json, "Print JSON");
  verb->add_option("--bytes", options->speed.packet_bytes, "Sizes of packets")
      ->check(whole_number(bench::CheckLayout::kLeastPacket, SPILLWAY_MAX_PACKET))
      ->capture_default_str();
  verb->add_option("--rounds", options->speed.rounds, "Runs of each check; the best counts")
      ->check(whole_number(1, 1'000'000))
      ->capture_default_str();
  verb->footer(
      "Examples:\n"
      "  spillway bench checks\n"
      "  spillway bench checks --bytes 4052 --json\n"
      "SPILLWAY_SIMD=scalar (neon, avx2, ...) makes tags with other instructions.");
  verb->callback([options] { run_checks(*options); });
}

}  // namespace spillway::cli
