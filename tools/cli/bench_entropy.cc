// SPDX-License-Identifier: Apache-2.0
//
// `spillway bench entropy`: size and speed of lossless codes for 8-bit numbers, beside zstd, Huff0.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/version.h"
#include "tools/bench/codec/entropy_speed.h"
#include "tools/bench/progress.h"
#include "tools/cli/commands.h"
#include "tools/cli/text_table.h"

namespace spillway::cli {
namespace {

struct BenchEntropyOptions {
  bool json = false;
  bool quick = false;
  bool fast_only = false;
  std::string gradients = "tests/data/gradients";
};

void print_entropy_json(const std::vector<bench::EntropySpeed>& rows) {
  nlohmann::json out = {{"version", base::kVersion}, {"rows", nlohmann::json::array()}};
  for (const bench::EntropySpeed& row : rows) {
    out["rows"].push_back({{"sample", row.sample},
                           {"coder", row.coder},
                           {"target", row.target},
                           {"entropy_bits", row.entropy_bits},
                           {"bits_per_value", row.bits},
                           {"encode_gb_per_s", row.encode_gigabytes_per_second},
                           {"decode_gb_per_s", row.decode_gigabytes_per_second}});
  }
  fmt::print("{}\n", out.dump(2));
}

void print_entropy_table(const std::vector<bench::EntropySpeed>& rows) {
  TextTable table(
      {"sample", "coder", "code", "bits", "over entropy", "encode GB/s", "decode GB/s"});
  for (const bench::EntropySpeed& row : rows) {
    table.add_row({row.sample, row.coder, row.target, fmt::format("{:.3f}", row.bits),
                   fmt::format("{:+.2f} %", 100.0 * (row.bits / row.entropy_bits - 1.0)),
                   fmt::format("{:.3f}", row.encode_gigabytes_per_second),
                   fmt::format("{:.3f}", row.decode_gigabytes_per_second)});
  }
  fmt::print("{}", table.to_string());
}

void run_entropy(const BenchEntropyOptions& options) {
  const bench::EntropyOptions measured{.values = std::size_t{1} << (options.quick ? 19 : 22),
                                       .repetitions = options.quick ? 5 : 15,
                                       .plain_rivals = !options.fast_only,
                                       .gradients = options.gradients};
  const std::vector<bench::EntropySample> samples = bench::entropy_samples(measured);
  std::vector<bench::EntropySpeed> rows;
  {
    bench::Progress progress(samples.size());
    rows = bench::measure_entropy(samples, measured, progress);
  }
  options.json ? print_entropy_json(rows) : print_entropy_table(rows);
}

}  // namespace

void add_bench_entropy(CLI::App& bench) {
  CLI::App* verb = bench.add_subcommand(
      "entropy", "Lossless codes of 8-bit numbers on one core, beside zstd -1 and Huff0");
  const auto options = std::make_shared<BenchEntropyOptions>();
  verb->add_flag("--json", options->json, "Print JSON");
  verb->add_flag("--quick", options->quick, "Fewer values and repetitions");
  verb->add_flag("--fast-only", options->fast_only, "Leave out the codes from the literature");
  verb->add_option("--gradients", options->gradients, "Folder of .f32 files")
      ->capture_default_str();
  verb->footer(
      "Examples:\n"
      "  spillway bench entropy --fast-only\n"
      "  spillway bench entropy --quick --json\n"
      "zstd and Huff0 are measured where libzstd.so.1 is installed.");
  verb->callback([options] { run_entropy(*options); });
}

}  // namespace spillway::cli
