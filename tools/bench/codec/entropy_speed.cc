// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/codec/entropy_speed.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>

#include "codec/entropy/block_coder.h"
#include "codec/entropy/sample_integers.h"
#include "codec/reference/integer_coder.h"
#include "tools/bench/codec/best_rate.h"
#include "tools/bench/codec/gradient_file.h"
#include "tools/bench/codec/zstd_rival.h"
#include "tools/bench/command_error.h"

namespace spillway::bench {
namespace {

namespace entropy = codec::entropy;

// Slow coders process only this much of a sample.
constexpr std::size_t kPlainValues = std::size_t{1} << 18;

EntropySample drawn(const std::string& name, std::size_t values, double sigma) {
  return {name, entropy::narrowed<std::int8_t>(entropy::gaussian_integers(values / 4, sigma, 1)),
          entropy::narrowed<std::int8_t>(entropy::gaussian_integers(values, sigma, 2))};
}

std::vector<std::int8_t> quantised(const std::vector<float>& gradient) {
  float largest = 0.0F;
  for (const float value : gradient) {
    largest = std::max(largest, std::abs(value));
  }
  const float scale = largest > 0.0F ? 127.0F / largest : 0.0F;
  std::vector<std::int8_t> values(gradient.size());
  std::transform(gradient.begin(), gradient.end(), values.begin(), [&](float value) {
    return static_cast<std::int8_t>(std::nearbyint(value * scale));
  });
  return values;
}

// Learns from every other value and codes the rest: this measures coders, not how steps differ.
EntropySample recorded(const std::string& path) {
  const std::vector<std::int8_t> all = quantised(value_or_throw(load_gradient(path)));
  EntropySample sample{std::filesystem::path(path).stem().string(), {}, {}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    (i % 2 == 0 ? sample.values : sample.learned).push_back(all[i]);
  }
  return sample;
}

double entropy_of(std::span<const std::int8_t> values) {
  entropy::Histogram histogram(entropy::Alphabet::bytes());
  histogram.add(values);
  return histogram.entropy_bits() / static_cast<double>(values.size());
}

// Whether the receiver counts symbols for its next table, as in a transfer; the sender always does.
enum class DecoderCounts : bool { kNo, kYes };

EntropySpeed own_speed(const EntropySample& sample, const entropy::RansKernels& kernels,
                       DecoderCounts counts, int repetitions) {
  entropy::Histogram histogram(entropy::Alphabet::bytes());
  histogram.add(std::span<const std::int8_t>(sample.learned));
  const auto table = entropy::ProbabilityTable::of_counts(histogram);
  const entropy::EncodeTable encode_table(table);
  const entropy::DecodeTable decode_table(table);
  entropy::BlockEncoder encoder(kernels);
  entropy::BlockDecoder decoder(kernels);
  const std::span<const std::int8_t> values(sample.values);
  std::vector<std::uint8_t> bytes(entropy::max_block_bytes(values.size(), 8));
  std::size_t size = 0;
  entropy::Histogram next(entropy::Alphabet::bytes());
  const auto forget = [&] { next.clear(); };
  const double encode = best_rate(values.size(), repetitions, forget, [&] {
    size = value_or_throw(encoder.encode(values, encode_table, bytes, &next)).bytes;
  });
  std::vector<std::int8_t> decoded(values.size());
  const double decode = best_rate(values.size(), repetitions, forget, [&] {
    throw_unless_ok(decoder.decode(base::ByteView(bytes).first(size), &decode_table,
                                   std::span<std::int8_t>(decoded),
                                   counts == DecoderCounts::kYes ? &next : nullptr));
  });
  if (decoded != sample.values) {
    throw CommandError("the entropy coder returned other values: report this with the sample");
  }
  return {sample.name,
          counts == DecoderCounts::kYes ? "spillway, counting" : "spillway",
          std::string(kernels.name),
          entropy_of(values),
          8.0 * static_cast<double>(size) / static_cast<double>(values.size()),
          encode,
          decode};
}

EntropySpeed zstd_speed(const EntropySample& sample, ZstdRival& rival, int repetitions) {
  const base::ByteView values(reinterpret_cast<const std::uint8_t*>(sample.values.data()),
                              sample.values.size());
  std::vector<std::uint8_t> bytes;
  std::size_t size = 0;
  const double encode = best_rate(values.size(), repetitions, kNoPreparation,
                                  [&] { size = rival.compress(values, bytes); });
  std::vector<std::uint8_t> decoded(values.size());
  const double decode = best_rate(values.size(), repetitions, kNoPreparation, [&] {
    rival.decompress(base::ByteView(bytes).first(size), decoded);
  });
  return {sample.name,
          rival.name(),
          "",
          entropy_of(sample.values),
          8.0 * static_cast<double>(size) / static_cast<double>(values.size()),
          encode,
          decode};
}

EntropySpeed plain_speed(const EntropySample& sample, codec::reference::IntegerCoder& coder) {
  const std::size_t count = std::min(sample.values.size(), kPlainValues);
  const std::vector<std::int32_t> learned(sample.learned.begin(), sample.learned.end());
  const std::vector<std::int32_t> values(
      sample.values.begin(), sample.values.begin() + static_cast<std::ptrdiff_t>(count));
  coder.learn(learned);
  std::vector<std::uint8_t> bytes;
  const double encode = best_rate(count, 2, kNoPreparation, [&] { bytes = coder.encode(values); });
  std::vector<std::int32_t> decoded(count);
  const double decode =
      best_rate(count, 2, kNoPreparation, [&] { throw_unless_ok(coder.decode(bytes, decoded)); });
  return {sample.name,
          std::string(coder.name()),
          "",
          entropy_of(std::span(sample.values).first(count)),
          8.0 * static_cast<double>(bytes.size()) / static_cast<double>(count),
          encode,
          decode};
}

}  // namespace

std::vector<EntropySample> entropy_samples(const EntropyOptions& options) {
  std::vector<EntropySample> samples = {drawn("normal, sigma 0.35", options.values, 0.35),
                                        drawn("normal, sigma 4", options.values, 4.0),
                                        drawn("normal, sigma 20", options.values, 20.0)};
  for (const std::string& path : gradient_files(options.gradients)) {
    samples.push_back(recorded(path));
  }
  return samples;
}

std::vector<EntropySpeed> measure_entropy(const std::vector<EntropySample>& samples,
                                          const EntropyOptions& options, Progress& progress) {
  std::vector<EntropySpeed> rows;
  for (const EntropySample& sample : samples) {
    progress.step(sample.name);
    for (const entropy::RansKernels* kernels : entropy::available_rans_kernels()) {
      for (const DecoderCounts counts : {DecoderCounts::kNo, DecoderCounts::kYes}) {
        rows.push_back(own_speed(sample, *kernels, counts, options.repetitions));
      }
    }
    for (const ZstdUse use : {ZstdUse::kLevelOne, ZstdUse::kHuffmanOnly}) {
      if (const auto rival = ZstdRival::open(use)) {
        rows.push_back(zstd_speed(sample, *rival, options.repetitions));
      }
    }
    if (options.plain_rivals) {
      for (const auto& coder : codec::reference::all_integer_coders()) {
        rows.push_back(plain_speed(sample, *coder));
      }
    }
  }
  return rows;
}

}  // namespace spillway::bench
