// SPDX-License-Identifier: Apache-2.0
//
// `spillway sim allreduce`: all-reduces on a simulated network, by every plan beside the one that
// the library chooses, in nccl-tests' columns.
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/text.h"
#include "collective/operation.h"
#include "lab/presets.h"
#include "sim/all_reduces.h"
#include "tools/bench/codec/accuracy.h"
#include "tools/bench/progress.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/cli/output.h"

namespace spillway::cli {
namespace {

using collective::Algorithm;

constexpr std::uint64_t kMostAllReduces = 10'000;
constexpr std::uint16_t kMostSimulatedRanks = 4096;
constexpr std::uint16_t kMostRanksPerHost = 64;

struct SimAllreduceOptions {
  std::string scenario{};
  std::string preset{};
  std::vector<std::string> overrides{};
  std::vector<std::string> sizes{"64k", "1m", "8m"};
  std::vector<std::string> algorithms{"auto", "direct", "hierarchical", "ring", "tree"};
  std::uint16_t ranks = 0;  // 0: every host
  std::uint16_t ranks_per_host = 1;
  unsigned bits = 0;  // 0: exact
  std::string codec = "planes";
  std::string type = "float32";
  std::string gradient{};  // a file; empty: Gaussian values
  unsigned count = 24;
  std::optional<std::uint64_t> seed{};
  bool json = false;
};

struct MeasuredPlan {
  std::string asked;
  sim::AllReducesResult result;
};

Algorithm algorithm_named(const std::string& name) {
  for (unsigned index = 0; index < collective::kAlgorithms; ++index) {
    const auto algorithm = static_cast<Algorithm>(index);
    if (name == collective::algorithm_name(algorithm)) {
      return algorithm;
    }
  }
  return Algorithm::kAutomatic;  // "auto"
}

collective::DataType type_named(const std::string& name) {
  for (const collective::DataType type :
       {collective::DataType::kFloat16, collective::DataType::kBfloat16}) {
    if (name == collective::data_type_name(type)) {
      return type;
    }
  }
  return collective::DataType::kFloat32;
}

scenario::Scenario network_of(const SimAllreduceOptions& options) {
  std::vector<std::string> overrides = options.overrides;
  if (options.seed) {
    overrides.push_back(fmt::format("seed={}", *options.seed));
  }
  if (options.preset.empty()) {
    return load_scenario(options.scenario, overrides);
  }
  const lab::Preset preset = parsed("--preset", lab::find_preset(options.preset));
  return scenario_from(std::string(preset.text), "preset " + options.preset, overrides);
}

// Bytes that every plan moves over a host's link at least, one way, without headers.
double bound_bytes(std::size_t bytes, std::uint16_t hosts, double bits) {
  return 2.0 * (hosts - 1) / hosts * static_cast<double>(bytes) * bits / 32.0;
}

// Bits of a value on the wire.
double bits_of(const SimAllreduceOptions& options, const sim::AllReducesResult& result) {
  return result.coded_bits > 0.0 ? result.coded_bits : options.bits == 0 ? 32.0 : options.bits;
}

std::vector<MeasuredPlan> measure(const SimAllreduceOptions& options,
                                  const scenario::Scenario& network, std::uint16_t ranks,
                                  std::size_t bytes, std::span<const float> gradient,
                                  bench::Progress& progress) {
  const collective::DataType type = type_named(options.type);
  std::vector<MeasuredPlan> rows;
  for (const std::string& asked : options.algorithms) {
    progress.step(fmt::format("{} bytes, {}", bytes, asked));
    sim::AllReducesSetting setting{.scenario = network,
                                   .ranks = ranks,
                                   .ranks_per_host = options.ranks_per_host,
                                   .values = bytes / collective::element_size(type),
                                   .type = type,
                                   .gradient = gradient,
                                   .algorithm = algorithm_named(asked),
                                   .count = options.count};
    if (options.bits > 0) {
      const auto bits = static_cast<std::uint8_t>(options.bits);
      setting.tolerance = collective::Tolerance{.precision = bits, .gather_precision = bits};
      if (options.codec == collective::codec_name(collective::Codec::kEntropy)) {
        setting.tolerance->codec = collective::Codec::kEntropy;
        setting.tolerance->loss_bound_ppm = 0;
        setting.tolerance->feedback_tensor = 1;  // so that ranks remember tables
      }
    }
    const base::Result<sim::AllReducesResult> result = sim::run_all_reduces(setting);
    if (!result.ok()) {
      throw CommandError(fmt::format("{} bytes, {}: {}", bytes, asked, result.status().message()));
    }
    rows.push_back({asked, *result});
  }
  return rows;
}

void run_sim_allreduce(const SimAllreduceOptions& options) {
  const scenario::Scenario network = network_of(options);
  const scenario::Topology topology = parsed("scenario", scenario::build_topology(network));
  const auto hosts =
      static_cast<std::uint16_t>(std::min<std::uint32_t>(topology.hosts(), kMostSimulatedRanks));
  const auto ranks = static_cast<std::uint16_t>(
      options.ranks != 0 ? options.ranks
                         : std::min<unsigned>(hosts * options.ranks_per_host, kMostSimulatedRanks));
  const auto used_hosts = static_cast<std::uint16_t>(ranks / options.ranks_per_host);
  std::vector<float> gradient;
  if (!options.gradient.empty()) {
    gradient = parsed("--gradient", bench::load_gradient(options.gradient));
  }
  bench::Progress progress(options.sizes.size() * options.algorithms.size());
  nlohmann::json rows = nlohmann::json::array();
  TextTable table({"size", "algorithm", "used", "time", "algbw", "busbw", "x bound", "x best",
                   "sent", "x NIC", "control", "repeated"});
  for (const std::string& text : options.sizes) {
    const auto bytes = static_cast<std::size_t>(parsed("--sizes", base::parse_bytes(text)).count());
    const std::vector<MeasuredPlan> plans =
        measure(options, network, ranks, bytes, gradient, progress);
    const auto time_us = [](const MeasuredPlan& plan) {
      return base::microseconds_of(plan.result.median());
    };
    const double best = time_us(*std::min_element(
        plans.begin(), plans.end(),
        [&](const MeasuredPlan& a, const MeasuredPlan& b) { return time_us(a) < time_us(b); }));
    for (const MeasuredPlan& plan : plans) {
      const double us = time_us(plan);
      const double bandwidth = static_cast<double>(bytes) / us / 1e3;  // GB/s
      const double least = bound_bytes(bytes, used_hosts, bits_of(options, plan.result));
      const double bound = least * 8.0 * 1e6 / static_cast<double>(plan.result.rate.count());
      const double nic = plan.result.busiest_nic_bytes / least;
      const auto data = static_cast<double>(std::max<std::uint64_t>(plan.result.data_packets, 1));
      const double control = static_cast<double>(plan.result.control_packets) / data;
      const double repeated = static_cast<double>(plan.result.repeated_packets) / data;
      const double sent = static_cast<double>(plan.result.wire_bytes) /
                          (2.0 * (ranks - 1) * static_cast<double>(bytes));
      table.add_row({std::to_string(bytes), plan.asked,
                     collective::algorithm_name(plan.result.algorithm), fmt::format("{:.1f}", us),
                     fmt::format("{:.4f}", bandwidth),
                     fmt::format("{:.4f}", bandwidth * 2.0 * (ranks - 1) / ranks),
                     fmt::format("{:.2f}", us / bound), fmt::format("{:.2f}", us / best),
                     fmt::format("{:.3f}", sent), fmt::format("{:.3f}", nic),
                     fmt::format("{:.3f}", control), fmt::format("{:.4f}", repeated)});
      rows.push_back({{"bytes", bytes},
                      {"asked", plan.asked},
                      {"algorithm", collective::algorithm_name(plan.result.algorithm)},
                      {"time_us", us},
                      {"over_bound", us / bound},
                      {"over_best", us / best},
                      {"sent_share", sent},
                      {"coded_bytes", plan.result.code.bytes},
                      {"coded_plain_bytes", plan.result.code.plain_bytes},
                      {"nic_over_bound", nic},
                      {"control_share", control},
                      {"repeated_share", repeated}});
    }
  }
  if (options.json) {
    fmt::print("{}\n", nlohmann::json{{"ranks", ranks},
                                      {"ranks_per_host", options.ranks_per_host},
                                      {"bits", options.bits},
                                      {"type", options.type},
                                      {"rows", rows}}
                           .dump(2));
    return;
  }
  fmt::print(
      "{} ranks on {} hosts, {}, {} all-reduces of each size; the median of the second half, in "
      "virtual time\n\n"
      "{}\nTimes in us, bandwidths in GB/s. Bound: 2 (h - 1) / h of the tensor over the link of "
      "each of h hosts, without headers. Sent: UDP payload of the last all-reduce, over 2 (n - 1) "
      "/ n "
      "of its tensor for each of n ranks. x NIC: bytes of frames over the busiest host's link, "
      "over "
      "the bound's.\n",
      ranks, used_hosts,
      options.bits == 0 ? fmt::format("exact, {}", options.type)
                        : fmt::format("{} bits a value, codec {}", options.bits, options.codec),
      options.count, table.to_string());
}

}  // namespace

void add_sim_allreduce(CLI::App& sim) {
  const auto options = std::make_shared<SimAllreduceOptions>();
  CLI::App* command =
      sim.add_subcommand("allreduce", "All-reduces by every plan, and by the one that is chosen");
  CLI::Option* file = command->add_option(
      "scenario", options->scenario, "File that describes the network (sim/scenario/scenario.h)");
  command
      ->add_option("--preset", options->preset, "A network of `spillway lab run` instead of a file")
      ->excludes(file);
  command
      ->add_option("--set", options->overrides,
                   "noun.key=value: change a line; noun.2.key=value: only the second of that noun")
      ->allow_extra_args(false);
  command->add_option("--ranks", options->ranks, "On the first hosts; by default on every host")
      ->check(whole_number(2, kMostSimulatedRanks));
  command
      ->add_option("--ranks-per-host", options->ranks_per_host,
                   "Ranks that share a host's link and memory, numbered host by host")
      ->check(whole_number(1, kMostRanksPerHost));
  command->add_option("--sizes", options->sizes, "Bytes of a tensor: 64k,1m,8m")->delimiter(',');
  command
      ->add_option("--algorithms", options->algorithms,
                   "auto: found by trials on the operations themselves")
      ->delimiter(',')
      ->check(CLI::IsMember({"auto", "direct", "hierarchical", "ring", "tree"}));
  command->add_option("--bits", options->bits, "Bits a value of a tolerant all-reduce; 0: exact")
      ->check(whole_number(0, collective::kMostPrecision));
  command->add_option("--type", options->type, "Type of the values")
      ->check(CLI::IsMember({"float32", "float16", "bfloat16"}));
  command->add_option("--gradient", options->gradient,
                      "Raw float32 values to reduce, again and again; by default Gaussian ones");
  command->add_option("--codec", options->codec, "Codec of a tolerant all-reduce")
      ->check(CLI::IsMember({"planes", "entropy"}));
  command->add_option("--count", options->count, "All-reduces of each size")
      ->check(whole_number(1, kMostAllReduces));
  command
      ->add_option("--seed", options->seed, "Seed of everything random, instead of the scenario's")
      ->check(any_seed());
  command->add_flag("--json", options->json, "Print JSON instead of a table");
  command->footer(
      "Examples:\n"
      "  spillway sim allreduce --preset oversubscribed\n"
      "  spillway sim allreduce --preset clean --set topology.hosts=16 --sizes 4k,64k\n"
      "  spillway sim allreduce --preset congested --bits 5 --algorithms auto\n"
      "  spillway sim allreduce --preset clean --algorithms auto --type bfloat16 --count 40\n"
      "  spillway sim allreduce --preset clean --ranks-per-host 4 --bits 5 --algorithms "
      "auto,direct");
  command->callback([options] {
    if (options->scenario.empty() && options->preset.empty()) {
      throw CLI::RequiredError("a scenario or --preset");
    }
    run_sim_allreduce(*options);
  });
}

}  // namespace spillway::cli
