// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/codec/speed.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "codec/entropy/block_coder.h"
#include "codec/entropy/float_coder.h"
#include "codec/reference/integer_coder.h"
#include "codec/sample_data.h"
#include "collective/reduction.h"
#include "tools/bench/codec/accuracy.h"
#include "tools/bench/command_error.h"

namespace spillway::bench {
namespace {

namespace entropy = codec::entropy;

// ------------------------------------------------------------------ zstd and Huff0

// libzstd as a rival, loaded from the system when a benchmark runs. Builds do not need it, and
// without it the benchmark leaves it out (docs/adr/0018).
//
// Huff0 has no exported interface. It is measured inside zstd: literals are Huffman-coded in blocks
// of 128 KiB and four streams, and the search for repetitions skips too far ahead to find any.

enum class ZstdUse { kLevelOne, kHuffmanOnly };

// Compresses bytes with its own settings. One thread.
class ZstdRival {
 public:
  // Null if libzstd.so.1 is missing or lacks a function.
  static std::unique_ptr<ZstdRival> open(ZstdUse use);

  virtual ~ZstdRival() = default;
  virtual std::string name() const = 0;
  // Compresses into `out`, which it enlarges as needed; returns the compressed size.
  virtual std::size_t compress(base::ByteView bytes, std::vector<std::uint8_t>& out) = 0;
  virtual std::size_t decompress(base::ByteView bytes, base::MutableByteView out) = 0;
};

struct ZstdContext;

// Identifiers of zstd's parameters and the values they are set to.
constexpr int kLevelParameter = 100;
constexpr int kLiteralsParameter = 1002;
constexpr int kHuffmanAlways = 1;
constexpr int kFurthestSkip = -131'072;  // a level: how far ahead the search skips

struct ZstdFunctions {
  ZstdContext* (*create)();
  std::size_t (*destroy)(ZstdContext*);
  std::size_t (*set)(ZstdContext*, int, int);
  std::size_t (*compress)(ZstdContext*, void*, std::size_t, const void*, std::size_t);
  std::size_t (*decompress)(void*, std::size_t, const void*, std::size_t);
  std::size_t (*bound)(std::size_t);
  unsigned (*is_error)(std::size_t);
};

template <typename Function>
bool find_function(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

class LoadedZstd : public ZstdRival {
 public:
  LoadedZstd(const ZstdFunctions& zstd, ZstdUse use)
      : zstd_(zstd), use_(use), context_(zstd.create()) {}
  ~LoadedZstd() override { zstd_.destroy(context_); }
  LoadedZstd(const LoadedZstd&) = delete;
  LoadedZstd& operator=(const LoadedZstd&) = delete;

  bool prepare() {
    if (context_ == nullptr) {
      return false;
    }
    if (use_ == ZstdUse::kLevelOne) {
      return is_set(kLevelParameter, 1);
    }
    return is_set(kLevelParameter, kFurthestSkip) && is_set(kLiteralsParameter, kHuffmanAlways);
  }

  std::string name() const override { return use_ == ZstdUse::kLevelOne ? "zstd -1" : "huff0"; }

  std::size_t compress(base::ByteView bytes, std::vector<std::uint8_t>& out) override {
    out.resize(zstd_.bound(bytes.size()));
    return checked(zstd_.compress(context_, out.data(), out.size(), bytes.data(), bytes.size()));
  }

  std::size_t decompress(base::ByteView bytes, base::MutableByteView out) override {
    return checked(zstd_.decompress(out.data(), out.size(), bytes.data(), bytes.size()));
  }

 private:
  bool is_set(int parameter, int value) {
    return zstd_.is_error(zstd_.set(context_, parameter, value)) == 0;
  }
  std::size_t checked(std::size_t result) const {
    if (zstd_.is_error(result) != 0) {
      throw CommandError("libzstd failed: run without it (rename libzstd.so.1 or leave it out)");
    }
    return result;
  }

  ZstdFunctions zstd_;
  ZstdUse use_;
  ZstdContext* context_;
};

std::unique_ptr<ZstdRival> ZstdRival::open(ZstdUse use) {
  // Never closed: it stays loaded for the life of the process, as a linked library would.
  static void* const library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
  ZstdFunctions zstd{};
  if (library == nullptr || !find_function(library, "ZSTD_createCCtx", zstd.create) ||
      !find_function(library, "ZSTD_freeCCtx", zstd.destroy) ||
      !find_function(library, "ZSTD_CCtx_setParameter", zstd.set) ||
      !find_function(library, "ZSTD_compress2", zstd.compress) ||
      !find_function(library, "ZSTD_decompress", zstd.decompress) ||
      !find_function(library, "ZSTD_compressBound", zstd.bound) ||
      !find_function(library, "ZSTD_isError", zstd.is_error)) {
    return nullptr;
  }
  auto rival = std::make_unique<LoadedZstd>(zstd, use);
  return rival->prepare() ? std::move(rival) : nullptr;
}

// ------------------------------------------------------------------ the measurement

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

// ------------------------------------------------------------------ floats

namespace {

struct FloatSample {
  std::string name;
  std::string type;
  entropy::FloatWidth width;
  std::vector<std::uint8_t> bytes;

  double bits(std::size_t coded) const {
    return 8.0 * static_cast<double>(coded) * static_cast<double>(width) /
           static_cast<double>(bytes.size());
  }
};

std::vector<FloatSample> samples_of(const std::string& name, std::span<const float> values) {
  FloatSample wide{name, "float32", entropy::FloatWidth::kFour, {}};
  FloatSample narrow{name, "bfloat16", entropy::FloatWidth::kTwo, {}};
  for (const float value : values) {
    base::append_le(wide.bytes, value);
    base::append_le(narrow.bytes, collective::float_to_bfloat16(value));
  }
  return {std::move(wide), std::move(narrow)};
}

void check_same(const FloatSample& sample, const std::vector<std::uint8_t>& decoded) {
  if (decoded != sample.bytes) {
    throw CommandError("a lossless coder returned other values: report this with the sample");
  }
}

FloatSpeed own_speed(const FloatSample& sample, const entropy::RansKernels& kernels,
                     int repetitions) {
  entropy::FloatEncoder encoder(kernels);
  entropy::FloatDecoder decoder(kernels);
  std::vector<std::uint8_t> code(2 * sample.bytes.size() + 64);
  std::size_t size = 0;
  const double encode = best_rate(sample.bytes.size(), repetitions, kNoPreparation, [&] {
    size = encoder.encode(sample.bytes, sample.width, code).value_or(0);
  });
  std::vector<std::uint8_t> decoded(sample.bytes.size());
  const double decode = best_rate(sample.bytes.size(), repetitions, kNoPreparation, [&] {
    throw_unless_ok(decoder.decode(base::ByteView(code).first(size), sample.width, decoded));
  });
  check_same(sample, decoded);
  return {sample.name,       sample.type, "spillway", std::string(kernels.name),
          sample.bits(size), encode,      decode};
}

FloatSpeed zstd_speed(const FloatSample& sample, ZstdRival& rival, int repetitions) {
  std::vector<std::uint8_t> code;
  std::size_t size = 0;
  const double encode = best_rate(sample.bytes.size(), repetitions, kNoPreparation,
                                  [&] { size = rival.compress(sample.bytes, code); });
  std::vector<std::uint8_t> decoded(sample.bytes.size());
  const double decode = best_rate(sample.bytes.size(), repetitions, kNoPreparation, [&] {
    rival.decompress(base::ByteView(code).first(size), decoded);
  });
  check_same(sample, decoded);
  return {sample.name, sample.type, rival.name(), "", sample.bits(size), encode, decode};
}

}  // namespace

std::size_t float_samples(const EntropyOptions& options) {
  return 1 + gradient_files(options.gradients).size();
}

std::vector<FloatSpeed> measure_floats(const EntropyOptions& options, Progress& progress) {
  std::vector<FloatSpeed> rows;
  const auto measure = [&](const std::string& name, std::span<const float> values) {
    progress.step(name);
    for (const FloatSample& sample : samples_of(name, values)) {
      for (const entropy::RansKernels* kernels : entropy::available_rans_kernels()) {
        rows.push_back(own_speed(sample, *kernels, options.repetitions));
      }
      for (const ZstdUse use : {ZstdUse::kLevelOne, ZstdUse::kHuffmanOnly}) {
        if (const auto rival = ZstdRival::open(use)) {
          rows.push_back(zstd_speed(sample, *rival, options.repetitions));
        }
      }
    }
  };
  measure("normal", codec::gaussian_values(options.values, 1));
  for (const std::string& path : gradient_files(options.gradients)) {
    measure(std::filesystem::path(path).stem().string(), value_or_throw(load_gradient(path)));
  }
  return rows;
}

}  // namespace spillway::bench
