// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/codec/accuracy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <filesystem>

#include "base/random.h"
#include "codec/reference/reference_codec.h"
#include "codec/reference/trimmable.h"
#include "codec/row_decoder.h"
#include "codec/row_encoder.h"
#include "codec/sample_data.h"
#include "tools/bench/codec/gradient_file.h"
#include "tools/bench/codec/trial.h"
#include "tools/bench/command_error.h"

namespace spillway::bench {
namespace {

constexpr std::array<unsigned, 7> kPlanes = {1, 2, 3, 4, 8, 16, 32};
constexpr std::array<unsigned, 4> kBiasPlanes = {1, 2, 3, 4};
constexpr std::array<unsigned, 3> kMtus = {1500, 4096, 9000};
constexpr std::array<unsigned, 5> kCuts = {102, 128, 206, 256, 512};
constexpr std::array<double, 5> kTrimFractions = {0.1, 0.25, 0.5, 0.75, 1.0};
// Bias is a property of rows: one row per sample is enough, and keeps a thousand seeds quick.
constexpr unsigned kBiasRowLog2 = 12;
constexpr std::size_t kPaperValues = std::size_t{1} << 18;
// The smallest frame with room for a plane after our headers. The paper's switch cut sharply too,
// at 87 bytes; slack is for ASICs whose cut varies.
constexpr unsigned kSmallestSharpCut = 102;

const PacketFate kAllArrive = [](std::size_t, std::size_t size) { return size; };

double eden_error(const Sample& sample, unsigned bits, int messages) {
  if (bits > 8) {
    return 0.0;
  }
  const auto codec =
      value_or_throw(codec::reference::make_reference_codec(fmt::format("eden-{}", bits)));
  std::vector<float> out(sample.values.size());
  double total = 0.0;
  for (int seed = 0; seed < messages; ++seed) {
    const auto bytes = codec->encode(sample.values, static_cast<std::uint64_t>(seed));
    const base::Status status =
        codec->decode(bytes, out.size(), static_cast<std::uint64_t>(seed), out);
    if (!status.ok()) {
      throw CommandError(status);
    }
    total += codec::nmse(out, sample.values);
  }
  return total / messages;
}

CutError cut_error(const Sample& sample, unsigned mtu, unsigned cut, int messages) {
  const packetize::PacketLimits fabric{
      .mtu = mtu, .trim_bytes = cut, .trim_slack_bytes = cut == kSmallestSharpCut ? 0U : 4U};
  const packetize::Encoding encoding;
  const packetize::PacketPlan plan =
      value_or_throw(packetize::PacketPlan::make(sample.values.size(), fabric, encoding));
  CutError result{sample.name, mtu, cut, plan.coordinates_per_packet(), 0.0, 0.0};
  for (int step = 0; step < messages; ++step) {
    const TrialResult trial = run_trial(sample.values, fabric, encoding,
                                        static_cast<std::uint32_t>(step), cut_all(fabric, cut));
    result.nmse += trial.nmse / messages;
    result.planes = trial.report.mean_planes();
  }
  return result;
}

// Averages the errors of one row's estimates over even and over odd seeds. They are independent, so
// the inner product of the two means estimates the squared bias without the means' noise.
BiasFigure bias_of(const std::string& name, std::span<const float> row, unsigned planes,
                   int seeds) {
  const std::size_t length = std::size_t{1} << kBiasRowLog2;
  codec::RowEncoder encoder;
  std::vector<std::uint8_t> bytes(length / 8 * planes);
  std::vector<float> values(length);
  std::array<std::vector<double>, 2> errors;
  errors[0].resize(row.size());
  errors[1].resize(row.size());
  const codec::Kernels& kernels = codec::best_kernels();
  for (int seed = 0; seed < seeds; ++seed) {
    const codec::RotationId rotation{base::derive_key(0xB1A5, {std::uint32_t(seed), 0, 0, 0}), 0};
    const codec::RowHeader header = encoder.encode(row, kBiasRowLog2, rotation, planes);
    encoder.write_planes(0, length, planes, bytes.data());
    codec::decode_planes(kernels, {bytes, length, planes}, codec::Estimate::kUnbiased,
                         values.data());
    codec::finish_row(kernels, header, rotation, kBiasRowLog2, length, codec::Estimate::kUnbiased,
                      values.data());
    for (std::size_t i = 0; i < row.size(); ++i) {
      errors[seed % 2][i] += (static_cast<double>(values[i]) - row[i]) * 2.0 / seeds;
    }
  }
  double product = 0.0;
  double square = 0.0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    product += errors[0][i] * errors[1][i];
    square += std::pow((errors[0][i] + errors[1][i]) / 2.0, 2);
  }
  const double energy = codec::energy(row);
  return {name, planes, std::sqrt(std::max(0.0, product) / energy), std::sqrt(square / energy)};
}

// Trims this share of the packets, rounded to a whole number, chosen at random.
void trim_exactly(double fraction, base::RandomSequence& random,
                  std::vector<codec::reference::PacketFate>& fates) {
  using codec::reference::PacketFate;
  const auto trimmed =
      static_cast<std::size_t>(std::lround(fraction * static_cast<double>(fates.size())));
  std::fill(fates.begin(), fates.end(), PacketFate::kWhole);
  std::fill_n(fates.begin(), trimmed, PacketFate::kTrimmed);
  for (std::size_t i = fates.size(); i > 1; --i) {
    std::swap(fates[i - 1], fates[random.next_below(i)]);
  }
}

}  // namespace

std::vector<Sample> accuracy_samples(std::size_t values, const std::string& gradient_folder) {
  std::vector<Sample> samples = {{"gaussian", codec::gaussian_values(values, 11)},
                                 {"lognormal", codec::lognormal_values(values, 12)},
                                 {"sparse-1%", codec::sparse_values(values, 100, 13)}};
  for (const std::string& path : gradient_files(gradient_folder)) {
    std::vector<float> gradient = value_or_throw(load_gradient(path));
    gradient.resize(std::bit_floor(gradient.size()));
    samples.push_back({std::filesystem::path(path).stem().string(), std::move(gradient)});
  }
  return samples;
}

std::vector<PlanesError> measure_planes(const std::vector<Sample>& samples,
                                        const AccuracyOptions& options, Progress& progress) {
  std::vector<PlanesError> results;
  for (const Sample& sample : samples) {
    progress.step(fmt::format("error by planes, {}", sample.name));
    for (const unsigned planes : kPlanes) {
      double total = 0.0;
      for (int step = 0; step < options.messages; ++step) {
        total += run_trial(sample.values, {}, {.precision = planes},
                           static_cast<std::uint32_t>(step), kAllArrive)
                     .nmse;
      }
      results.push_back({sample.name, planes, total / options.messages,
                         eden_error(sample, planes, options.messages)});
    }
  }
  return results;
}

std::vector<CutError> measure_cuts(const std::vector<Sample>& samples,
                                   const AccuracyOptions& options, Progress& progress) {
  std::vector<CutError> results;
  for (const Sample& sample : samples) {
    progress.step(fmt::format("error by cut size, {}", sample.name));
    for (const unsigned mtu : kMtus) {
      for (const unsigned cut : kCuts) {
        results.push_back(cut_error(sample, mtu, cut, options.messages));
      }
    }
  }
  return results;
}

std::vector<BiasFigure> measure_bias(const std::vector<Sample>& samples,
                                     const AccuracyOptions& options, Progress& progress) {
  std::vector<BiasFigure> results;
  for (const Sample& sample : samples) {
    progress.step(fmt::format("bias, {}", sample.name));
    const std::size_t length = std::min(sample.values.size(), std::size_t{1} << kBiasRowLog2);
    for (const unsigned planes : kBiasPlanes) {
      results.push_back(
          bias_of(sample.name, std::span(sample.values).first(length), planes, options.bias_seeds));
    }
  }
  return results;
}

std::vector<TrimFigure> measure_paper_encodings(const AccuracyOptions& options,
                                                Progress& progress) {
  using codec::reference::PacketFate;
  const std::vector<float> values = codec::gaussian_values(kPaperValues, 21);
  std::vector<float> out(values.size());
  std::vector<TrimFigure> results;
  for (const auto& encoding : codec::reference::all_trimmable_encodings()) {
    progress.step(fmt::format("the paper's {}", encoding->name()));
    std::vector<PacketFate> fates(encoding->packet_count(values.size()));
    for (const double fraction : kTrimFractions) {
      double total = 0.0;
      for (int seed = 0; seed < options.messages; ++seed) {
        base::RandomSequence random(base::derive_key(0x7219, {std::uint32_t(seed), 0, 0, 0}));
        trim_exactly(fraction, random, fates);
        const auto message = encoding->encode(values, static_cast<std::uint64_t>(seed));
        const base::Status status =
            encoding->decode(message, fates, static_cast<std::uint64_t>(seed), out);
        if (!status.ok()) {
          throw CommandError(status);
        }
        total += codec::nmse(out, values);
      }
      results.push_back({std::string(encoding->name()), fraction, total / options.messages});
    }
  }
  return results;
}

}  // namespace spillway::bench
