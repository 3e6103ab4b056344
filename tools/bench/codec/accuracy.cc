// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/codec/accuracy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/random.h"
#include "codec/block_code.h"
#include "codec/lanes.h"
#include "codec/level_code.h"
#include "codec/reference/reference_codec.h"
#include "codec/reference/trimmable.h"
#include "codec/row_codec.h"
#include "codec/sample_data.h"
#include "packetize/depacketizer.h"
#include "packetize/packetizer.h"
#include "tools/bench/command_error.h"

namespace spillway::bench {

// ------------------------------------------------------------------ files of gradients

base::Result<std::vector<float>> load_gradient(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) {
    return base::invalid_argument(fmt::format("cannot open {}: give a file of raw floats", path));
  }
  const auto size = static_cast<std::size_t>(file.tellg());
  if (size == 0 || size % sizeof(float) != 0) {
    return base::invalid_argument(fmt::format(
        "{} has {} bytes; a gradient file is a whole number of 4-byte floats", path, size));
  }
  std::vector<float> values(std::min(size / sizeof(float), kMaxGradientValues));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(float)));
  if (!file) {
    return base::invalid_argument(fmt::format("cannot read {}", path));
  }
  return values;
}

std::vector<std::string> gradient_files(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == ".f32") {
      paths.push_back(entry.path().string());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// ------------------------------------------------------------------ one tensor through packets

TrialResult run_trial(std::span<const float> tensor, const packetize::PacketLimits& fabric,
                      const packetize::Encoding& encoding, std::uint32_t step,
                      const PacketFate& fate) {
  const packetize::PacketPlan plan =
      value_or_throw(packetize::PacketPlan::make(tensor.size(), fabric, encoding));
  const packetize::Job job{.id = 1, .epoch = 0, .seed = 0x5B111};
  const wire::MessageId message{.operation = step};
  const wire::PacketAuth auth = packetize::seeded_auth(job);
  const packetize::PacketBuffer packets =
      packetize::Packetizer(plan).packetize(tensor, job, {.message = message}, auth);
  std::vector<float> received(tensor.size());
  packetize::Depacketizer receiver(plan, job, message, received);
  for (std::size_t i = 0; i < packets.size(); ++i) {
    const std::size_t arrived = std::min(fate(i, packets[i].size()), packets[i].size());
    if (arrived > 0) {
      receiver.add(packets[i].first(arrived), auth);
    }
  }
  TrialResult result;
  result.report = receiver.finish();
  result.nmse = codec::nmse(received, tensor);
  return result;
}

PacketFate cut_all(const packetize::PacketLimits& fabric, std::size_t frame_bytes) {
  const std::size_t overhead = fabric.frame_overhead();
  const std::size_t payload = frame_bytes - std::min(frame_bytes, overhead);
  return [payload](std::size_t, std::size_t size) { return std::min(size, payload); };
}

PacketFate hit_some(const packetize::PacketLimits& fabric, double share, std::size_t frame_bytes,
                    std::uint64_t seed) {
  const PacketFate cut = cut_all(fabric, frame_bytes);
  return [cut, share, seed](std::size_t index, std::size_t size) {
    const base::RandomBlock block =
        base::random_block(seed, {static_cast<std::uint32_t>(index), 0, 0, 0});
    return base::uniform_float(block[0]) < share ? cut(index, size) : size;
  };
}

// ------------------------------------------------------------------ figures of all codecs

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

// ------------------------------------------------------------------ sums

// Error of addable codes: measure_sums() of accuracy.h, on one row of each sample.

namespace {

constexpr std::array<unsigned, 4> kRankCounts = {1, 4, 8, 32};
constexpr std::array<unsigned, 5> kLevelBits = {2, 3, 4, 5, 8};

struct NamedCode {
  std::string name;
  codec::LevelCode code;
};

std::vector<NamedCode> level_codes(unsigned ranks) {
  std::vector<NamedCode> codes;
  for (const unsigned bits : kLevelBits) {
    codes.push_back({fmt::format("levels-{}", bits), codec::choose_level_code(bits, ranks)});
  }
  codes.push_back({"THC, 4 bits (30, 1/32)", codec::find_level_code(4, 30, 1.0 / 32)});
  codes.push_back({"THC, 3 bits (16, 1/32)", codec::find_level_code(3, 16, 1.0 / 32)});
  codes.push_back({"THC, 2 bits (34, 1/512)", codec::find_level_code(2, 34, 1.0 / 512)});
  return codes;
}

double bits_of(unsigned ranks, std::uint32_t largest) {
  return 64.0 / value_or_throw(codec::LaneLayout::make(ranks, largest)).lanes;
}

// The mean of one row's levels over `ranks` ranks.
std::vector<float> through_levels(const codec::LevelCode& code, unsigned ranks,
                                  codec::RotationId rotation, std::span<const float> values) {
  const codec::Kernels& kernels = codec::best_kernels();
  const codec::Row layout = codec::RowLayout(values.size(), codec::kMaxRowLog2).row(0);
  std::vector<float> row(layout.length());
  const codec::RotatedRow head =
      codec::rotate_for_levels(kernels, values, layout.log2_length, rotation, row);
  std::vector<std::uint32_t> levels(row.size());
  std::vector<std::uint32_t> sums(row.size());
  for (unsigned rank = 0; rank < ranks; ++rank) {
    codec::LevelRounder(code, rank).round(row, head, head.measure, rotation, levels);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i] += levels[i];
    }
  }
  codec::decode_level_sums(code, sums, ranks, row);
  codec::finish_level_row(kernels, code, head.measure, rotation, row.size(), 1.0, row);
  row.resize(values.size());
  return row;
}

double levels_error(const codec::LevelCode& code, unsigned ranks, std::span<const float> values,
                    int messages) {
  double total = 0.0;
  for (int message = 0; message < messages; ++message) {
    const codec::RotationId rotation{static_cast<std::uint64_t>(message), 0};
    total += codec::nmse(through_levels(code, ranks, rotation, values), values);
  }
  return total / messages;
}

// Rounds to nearest: ranks with the same values make the same error.
double blocks_error(const codec::BlockCode& code, std::span<const float> values) {
  std::vector<std::uint32_t> numbers(values.size());
  std::vector<float> back(values.size());
  const float scale = codec::measure_block(values);
  codec::encode_block(code, values, scale, numbers);
  codec::decode_block_sums(code, numbers, scale, 1, 1.0, back);
  return codec::nmse(back, values);
}

}  // namespace

std::vector<SumError> measure_sums(const std::vector<Sample>& samples,
                                   const AccuracyOptions& options, Progress& progress) {
  std::vector<SumError> results;
  for (const Sample& sample : samples) {
    progress.step(fmt::format("error of sums, {}", sample.name));
    const std::span<const float> values =
        std::span(sample.values).first(std::min(sample.values.size(), codec::kMaxRowLength));
    for (const unsigned ranks : kRankCounts) {
      for (const NamedCode& code : level_codes(ranks)) {
        results.push_back({sample.name, code.name, ranks, bits_of(ranks, code.code.range),
                           levels_error(code.code, ranks, values, options.messages)});
      }
      const codec::BlockCode blocks = codec::BlockCode::for_contributors(ranks);
      results.push_back({sample.name, "block", ranks, bits_of(ranks, blocks.largest()),
                         blocks_error(blocks, values)});
    }
  }
  return results;
}

}  // namespace spillway::bench
