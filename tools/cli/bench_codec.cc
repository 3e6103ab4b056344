// SPDX-License-Identifier: Apache-2.0
//
// `spillway bench codec`: speed and error of every codec, of the entropy coders and of the checks
// of packets, as tables or as JSON.
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <map>
#include <memory>
#include <vector>

#include "base/version.h"
#include "codec/kernels.h"
#include "tools/bench/checks/check_speed.h"
#include "tools/bench/codec/accuracy.h"
#include "tools/bench/codec/speed.h"
#include "tools/bench/progress.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/cli/output.h"
#include "wire/packet.h"

namespace spillway::cli {
namespace {

using nlohmann::json;

struct BenchCodecOptions {
  bool json = false;
  bool quick = false;
  std::string part = "all";
  std::string device = "cpu";
  std::string gradients = "tests/data/gradients";
  bool fast_only = false;  // entropy: without the coders of codec/reference
  bench::CheckSpeedOptions checks;
};

// ------------------------------------------------------------------ entropy coders

// Size and speed of lossless coders for 8-bit numbers and for floats, beside zstd and Huff0.

nlohmann::json json_of(const std::vector<bench::FloatSpeed>& floats) {
  nlohmann::json rows = nlohmann::json::array();
  for (const bench::FloatSpeed& row : floats) {
    rows.push_back({{"sample", row.sample},
                    {"type", row.type},
                    {"coder", row.coder},
                    {"target", row.target},
                    {"bits_per_value", row.bits},
                    {"encode_gb_per_s", row.encode_gigabytes_per_second},
                    {"decode_gb_per_s", row.decode_gigabytes_per_second}});
  }
  return rows;
}

void print_entropy_json(const std::vector<bench::EntropySpeed>& rows,
                        const std::vector<bench::FloatSpeed>& floats) {
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
  out["floats"] = json_of(floats);
  fmt::print("{}\n", out.dump(2));
}

void print_entropy_table(const std::vector<bench::EntropySpeed>& rows,
                         const std::vector<bench::FloatSpeed>& floats) {
  TextTable table(
      {"sample", "coder", "target", "bits", "over entropy", "encode GB/s", "decode GB/s"});
  for (const bench::EntropySpeed& row : rows) {
    table.add_row({row.sample, row.coder, row.target, fmt::format("{:.3f}", row.bits),
                   fmt::format("{:+.2f} %", 100.0 * (row.bits / row.entropy_bits - 1.0)),
                   fmt::format("{:.3f}", row.encode_gigabytes_per_second),
                   fmt::format("{:.3f}", row.decode_gigabytes_per_second)});
  }
  TextTable of_floats({"sample", "type", "coder", "target", "bits", "encode GB/s", "decode GB/s"});
  for (const bench::FloatSpeed& row : floats) {
    of_floats.add_row({row.sample, row.type, row.coder, row.target, fmt::format("{:.3f}", row.bits),
                       fmt::format("{:.3f}", row.encode_gigabytes_per_second),
                       fmt::format("{:.3f}", row.decode_gigabytes_per_second)});
  }
  fmt::print("{}\n{}", table.to_string(), of_floats.to_string());
}

void run_entropy(const BenchCodecOptions& options) {
  const bench::EntropyOptions measured{.values = std::size_t{1} << (options.quick ? 19 : 22),
                                       .repetitions = options.quick ? 5 : 15,
                                       .plain_rivals = !options.fast_only,
                                       .gradients = options.gradients};
  const std::vector<bench::EntropySample> samples = bench::entropy_samples(measured);
  std::vector<bench::EntropySpeed> rows;
  std::vector<bench::FloatSpeed> floats;
  {
    bench::Progress progress(samples.size() + bench::float_samples(measured));
    rows = bench::measure_entropy(samples, measured, progress);
    floats = bench::measure_floats(measured, progress);
  }
  options.json ? print_entropy_json(rows, floats) : print_entropy_table(rows, floats);
}

// ------------------------------------------------------------------ packet checks

// The cost of packet checks, beside CRC32C in the same run.
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

void run_checks(const BenchCodecOptions& options) {
  std::vector<bench::CheckSpeed> rows;
  {
    bench::Progress progress(bench::check_speed_steps(options.checks));
    rows = bench::measure_check_speed(options.checks, progress);
  }
  options.json ? print_checks_json(rows) : print_checks_table(rows);
}

// ------------------------------------------------------------------ codecs

struct BenchCodecResults {
  bench::SpeedResults speed;
  std::vector<bench::PlanesError> planes;
  std::vector<bench::CutError> cuts;
  std::vector<bench::BiasFigure> bias;
  std::vector<bench::SumError> sums;
  std::vector<bench::TrimFigure> paper;
};

BenchCodecResults measure(const BenchCodecOptions& options) {
  const bool speed = options.part != "error";
  const bool error = options.part != "speed";
  const bench::SpeedOptions speed_options{.values = std::size_t{1} << (options.quick ? 20 : 24),
                                          .repetitions = options.quick ? 3 : 9};
  const bench::AccuracyOptions accuracy{.messages = options.quick ? 2 : 16,
                                        .bias_seeds = options.quick ? 200 : 1000};
  const std::vector<bench::Sample> samples =
      error
          ? bench::accuracy_samples(std::size_t{1} << (options.quick ? 16 : 17), options.gradients)
          : std::vector<bench::Sample>{};
  bench::Progress progress((speed ? bench::speed_steps() : 0) +
                           (error ? samples.size() * 4 + 4 : 0));
  BenchCodecResults results;
  if (speed) {
    results.speed = bench::measure_speed(speed_options, progress);
  }
  if (error) {
    results.planes = bench::measure_planes(samples, accuracy, progress);
    results.cuts = bench::measure_cuts(samples, accuracy, progress);
    results.bias = bench::measure_bias(samples, accuracy, progress);
    results.sums = bench::measure_sums(samples, accuracy, progress);
    results.paper = bench::measure_paper_encodings(accuracy, progress);
  }
  return results;
}

// ------------------------------------------------------------------ JSON

json speed_json(const bench::SpeedResults& speed) {
  const double limit = speed.memcpy_gigabytes_per_second;
  json out = {{"memcpy_gb_per_s", limit}, {"hadamard", json::array()}, {"codecs", json::array()}};
  for (const bench::HadamardSpeed& row : speed.hadamard) {
    out["hadamard"].push_back({{"target", row.target},
                               {"row_log2", row.row_log2},
                               {"gb_per_s", row.gigabytes_per_second},
                               {"of_memcpy", row.gigabytes_per_second / limit}});
  }
  for (const bench::CodecSpeed& row : speed.codecs) {
    out["codecs"].push_back({{"codec", row.codec},
                             {"target", row.target},
                             {"encode_gb_per_s", row.encode_gigabytes_per_second},
                             {"decode_gb_per_s", row.decode_gigabytes_per_second},
                             {"encode_of_memcpy", row.encode_gigabytes_per_second / limit},
                             {"decode_of_memcpy", row.decode_gigabytes_per_second / limit},
                             {"wire_bits_per_value", row.wire_bits_per_value}});
  }
  return out;
}

json error_json(const BenchCodecResults& results) {
  json planes = json::array();
  for (const bench::PlanesError& row : results.planes) {
    json entry = {{"sample", row.sample}, {"planes", row.planes}, {"nmse", row.nmse}};
    if (row.eden_nmse > 0.0) {
      entry["eden_nmse"] = row.eden_nmse;
      entry["of_eden"] = row.nmse / row.eden_nmse;
    }
    planes.push_back(entry);
  }
  json cuts = json::array();
  for (const bench::CutError& row : results.cuts) {
    cuts.push_back({{"sample", row.sample},
                    {"mtu", row.mtu},
                    {"cut_bytes", row.cut_bytes},
                    {"values_per_packet", row.values_per_packet},
                    {"planes", row.planes},
                    {"nmse", row.nmse}});
  }
  json bias = json::array();
  for (const bench::BiasFigure& row : results.bias) {
    bias.push_back({{"sample", row.sample},
                    {"planes", row.planes},
                    {"bias", row.bias},
                    {"mean_error", row.mean_error}});
  }
  json sums = json::array();
  for (const bench::SumError& row : results.sums) {
    sums.push_back({{"sample", row.sample},
                    {"codec", row.codec},
                    {"ranks", row.ranks},
                    {"bits_per_value", row.bits_per_value},
                    {"nmse", row.nmse}});
  }
  json paper = json::array();
  for (const bench::TrimFigure& row : results.paper) {
    paper.push_back({{"encoding", row.encoding},
                     {"trimmed_fraction", row.trimmed_fraction},
                     {"nmse", row.nmse}});
  }
  return {{"by_planes", planes},
          {"by_cut", cuts},
          {"bias", bias},
          {"sums", sums},
          {"paper_encodings", paper}};
}

void print_json(const BenchCodecOptions& options, const BenchCodecResults& results) {
  json out = {{"version", base::kVersion}, {"best_target", codec::best_kernels().name}};
  if (options.part != "error") {
    out["speed"] = speed_json(results.speed);
  }
  if (options.part != "speed") {
    out["error"] = error_json(results);
  }
  fmt::print("{}\n", out.dump(2));
}

// ------------------------------------------------------------------ tables

std::string rate(double gigabytes_per_second, double limit) {
  return fmt::format("{:.2f} ({:.3f})", gigabytes_per_second, gigabytes_per_second / limit);
}

void print_speed(const bench::SpeedResults& speed) {
  const double limit = speed.memcpy_gigabytes_per_second;
  fmt::print("Speed on one core, GB/s of fp32 values; in brackets over memcpy ({:.1f} GB/s)\n",
             limit);
  TextTable table({"codec", "target", "encode", "decode", "bits/value"});
  for (const bench::HadamardSpeed& row : speed.hadamard) {
    table.add_row({fmt::format("hadamard 2^{}", row.row_log2), row.target,
                   rate(row.gigabytes_per_second, limit), "", ""});
  }
  for (const bench::CodecSpeed& row : speed.codecs) {
    table.add_row({row.codec, row.target, rate(row.encode_gigabytes_per_second, limit),
                   rate(row.decode_gigabytes_per_second, limit),
                   fmt::format("{:.2f}", row.wire_bits_per_value)});
  }
  fmt::print("{}\n", table.to_string());
}

void print_planes(const std::vector<bench::PlanesError>& results) {
  fmt::print("Error (NMSE) by planes; in brackets over EDEN with as many bits in the same run\n");
  std::map<std::string, std::vector<std::string>> rows;
  std::vector<std::string> order;
  std::vector<std::string> headings = {"sample"};
  for (const bench::PlanesError& row : results) {
    if (rows.find(row.sample) == rows.end()) {
      order.push_back(row.sample);
      rows[row.sample] = {row.sample};
    }
    if (row.sample == results.front().sample) {
      headings.push_back(std::to_string(row.planes));
    }
    rows[row.sample].push_back(
        row.eden_nmse > 0.0
            ? fmt::format("{} ({:.2f})", format_error(row.nmse), row.nmse / row.eden_nmse)
            : format_error(row.nmse));
  }
  TextTable table(headings);
  for (const std::string& sample : order) {
    table.add_row(rows[sample]);
  }
  fmt::print("{}\n", table.to_string());
}

void print_cuts(const std::vector<bench::CutError>& results) {
  fmt::print("Error when every packet is cut to this many bytes of frame, precision 16\n");
  TextTable table({"sample", "MTU", "cut", "values/packet", "planes left", "NMSE"});
  for (const bench::CutError& row : results) {
    table.add_row({row.sample, std::to_string(row.mtu), std::to_string(row.cut_bytes),
                   std::to_string(row.values_per_packet), fmt::format("{:.2f}", row.planes),
                   format_error(row.nmse)});
  }
  fmt::print("{}\n", table.to_string());
}

void print_bias(const std::vector<bench::BiasFigure>& results) {
  fmt::print("Bias of the mean over seeds, percent of the norm\n");
  TextTable table({"sample", "planes", "bias", "error of the mean"});
  for (const bench::BiasFigure& row : results) {
    table.add_row({row.sample, std::to_string(row.planes), fmt::format("{:.2f}", 100 * row.bias),
                   fmt::format("{:.2f}", 100 * row.mean_error)});
  }
  fmt::print("{}\n", table.to_string());
}

void print_sums(const std::vector<bench::SumError>& results) {
  fmt::print(
      "Error of the mean of ranks with the same values, by codecs whose packets can be added\n");
  TextTable table({"sample", "codec", "ranks", "bits/value", "NMSE"});
  for (const bench::SumError& row : results) {
    table.add_row({row.sample, row.codec, std::to_string(row.ranks),
                   fmt::format("{:.2f}", row.bits_per_value), format_error(row.nmse)});
  }
  fmt::print("{}\n", table.to_string());
}

void print_paper(const std::vector<bench::TrimFigure>& results) {
  fmt::print("One-bit heads of the trimmable-gradients paper, Gaussian values, 360 per packet\n");
  TextTable table({"encoding", "trimmed", "NMSE", "NMSE / 0.571 t"});
  for (const bench::TrimFigure& row : results) {
    table.add_row({row.encoding, fmt::format("{:.0f} %", 100 * row.trimmed_fraction),
                   format_error(row.nmse),
                   fmt::format("{:.3f}", row.nmse / (0.5708 * row.trimmed_fraction))});
  }
  fmt::print("{}\n", table.to_string());
}

// ------------------------------------------------------------------ a GPU

json cuda_json(const bench::CudaSpeedResults& results) {
  json speeds = json::array();
  for (const bench::CudaSpeed& row : results.speeds) {
    json entry = {{"tensor_bytes", row.tensor_bytes},
                  {"what", row.what},
                  {"gigabytes_per_second", row.encode_gigabytes_per_second},
                  {"over_copy", row.encode_gigabytes_per_second / row.copy_gigabytes_per_second}};
    if (row.decode_gigabytes_per_second > 0.0) {
      entry["decode_gigabytes_per_second"] = row.decode_gigabytes_per_second;
      entry["decode_over_copy"] = row.decode_gigabytes_per_second / row.copy_gigabytes_per_second;
    }
    speeds.push_back(std::move(entry));
  }
  return {{"version", base::kVersion}, {"device", results.device.name}, {"speed", speeds}};
}

void print_cuda(const bench::CudaSpeedResults& results) {
  fmt::print(
      "Speed on one {}, GB/s of the tensor's bytes; in brackets over a copy of it on the device\n",
      results.device.name);
  TextTable table({"tensor", "what", "encode", "decode"});
  for (const bench::CudaSpeed& row : results.speeds) {
    const double limit = row.copy_gigabytes_per_second;
    const double back = row.decode_gigabytes_per_second;
    table.add_row({fmt::format("{} MiB", row.tensor_bytes >> 20), row.what,
                   rate(row.encode_gigabytes_per_second, limit),
                   back > 0.0 ? rate(back, limit) : ""});
  }
  fmt::print("{}\n", table.to_string());
}

// "cuda" means "cuda:0".
int ordinal_of(const std::string& device) {
  const std::string number = device == "cuda" ? "0" : device.substr(device.find(':') + 1);
  const bool is_number = device.starts_with("cuda") && !number.empty() && number.size() <= 2 &&
                         number.find_first_not_of("0123456789") == std::string::npos;
  if (!is_number) {
    throw CLI::ValidationError("--device", fmt::format("'{}' is not cpu, cuda or cuda:1", device));
  }
  return std::stoi(number);
}

void run_on_gpu(const BenchCodecOptions& options) {
  bench::CudaSpeedOptions speed_options{.ordinal = ordinal_of(options.device)};
  if (options.quick) {
    speed_options.tensor_bytes.resize(1);
  }
  const bench::CudaSpeedResults results = value_or_throw(bench::measure_cuda_speed(speed_options));
  if (options.json) {
    fmt::print("{}\n", cuda_json(results).dump(2));
  } else {
    print_cuda(results);
  }
}

void run(const BenchCodecOptions& options) {
  if (options.part == "entropy") {
    run_entropy(options);
    return;
  }
  if (options.part == "checks") {
    run_checks(options);
    return;
  }
  if (options.device != "cpu") {
    run_on_gpu(options);
    return;
  }
  const BenchCodecResults results = measure(options);
  if (options.json) {
    print_json(options, results);
    return;
  }
  if (options.part != "error") {
    print_speed(results.speed);
  }
  if (options.part != "speed") {
    print_planes(results.planes);
    print_cuts(results.cuts);
    print_bias(results.bias);
    print_sums(results.sums);
    print_paper(results.paper);
  }
}

}  // namespace

void add_bench_codec(CLI::App& bench) {
  const auto options = std::make_shared<BenchCodecOptions>();
  CLI::App* command =
      bench.add_subcommand("codec", "Speed and error of every codec, beside memcpy and EDEN");
  command->add_flag("--json", options->json, "Print one JSON document instead of tables");
  command->add_flag("--quick", options->quick, "Fewer values and seeds: seconds, not a minute");
  command
      ->add_option("--part", options->part,
                   "all (speed and error), speed, error, entropy (lossless coders of 8-bit numbers "
                   "and floats, "
                   "beside zstd -1 and Huff0) or checks (of packets being copied, beside CRC32C)")
      ->check(CLI::IsMember({"all", "speed", "error", "entropy", "checks"}))
      ->capture_default_str();
  CLI::Option* device = command->add_option(
      "--device", options->device, "cpu, or cuda (cuda:1): the codecs' speed on that GPU alone");
  device->capture_default_str();
  command
      ->add_option("--gradients", options->gradients,
                   "Folder of real gradients (.f32 files) to include")
      ->capture_default_str();
  command
      ->add_flag("--fast-only", options->fast_only,
                 "Entropy: leave out the coders from the literature, which are not tuned")
      ->excludes(device);
  command->add_option("--bytes", options->checks.packet_bytes, "Checks: sizes of packets")
      ->check(whole_number(bench::CheckLayout::kLeastPacket, SPILLWAY_MAX_PACKET))
      ->capture_default_str();
  command->add_option("--rounds", options->checks.rounds, "Checks: runs of each; the best counts")
      ->check(whole_number(1, 1'000'000))
      ->capture_default_str();
  command->footer(
      "Examples:\n"
      "  spillway bench codec --part speed\n"
      "  spillway bench codec --json > codec.json\n"
      "  spillway bench codec --device cuda\n"
      "  spillway bench codec --part entropy --fast-only\n"
      "  spillway bench codec --part checks --bytes 4052 --json\n"
      "SPILLWAY_SIMD=scalar (neon, avx2, ...) makes another instruction set the default one.\n"
      "zstd and Huff0 are measured if libzstd.so.1 is installed.");
  command->callback([options] { run(*options); });
}

}  // namespace spillway::cli
