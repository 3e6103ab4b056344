// SPDX-License-Identifier: Apache-2.0
//
// Speed of the codecs on one core, beside memcpy in the same run, and their bits against error for
// one gradient. Throughput counts the tensor's bytes, 4 per value, whatever the wire carries.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "codec/kernels.h"
#include "codec/level_code.h"
#include "codec/reference/reference_codec.h"
#include "gpu/device.h"
#include "tools/bench/progress.h"
#include "wire/packet_auth.h"

namespace spillway::bench {

// ------------------------------------------------------------------ timing

// The speed of a piece of work is taken from the shortest of several runs, because noise only slows
// a run down.

// Keeps the compiler from removing work whose result nobody reads.
inline void keep(const void* data) {
  asm volatile("" : : "r"(data) : "memory");
}

// Returns bytes per nanosecond. `prepare` is not timed.
inline double best_rate(std::size_t bytes, int repetitions, const std::function<void()>& prepare,
                        const std::function<void()>& work) {
  const base::MonotonicClock clock;
  std::int64_t best = INT64_MAX;
  for (int i = 0; i < repetitions; ++i) {
    prepare();
    const base::Instant start = clock.now();
    work();
    best = std::min(best, (clock.now() - start).count());
  }
  return static_cast<double>(bytes) / static_cast<double>(std::max<std::int64_t>(best, 1));
}

inline const std::function<void()> kNoPreparation = [] {};

// ------------------------------------------------------------------ codecs beside memcpy

struct SpeedOptions {
  std::size_t values = std::size_t{1} << 24;  // 64 MiB: like a model's gradients, not in a cache
  int repetitions = 9;  // the best one counts, because noise only slows a run down
};

struct HadamardSpeed {
  std::string target;
  unsigned row_log2;
  double gigabytes_per_second;
};

struct CodecSpeed {
  std::string codec;
  std::string target;
  double encode_gigabytes_per_second;
  double decode_gigabytes_per_second;
  double wire_bits_per_value;  // UDP payload: headers and checks included
};

// One codec on one tensor. `work` is as long as `values` and keeps the decoded values, from which
// callers compute the error.
struct SpeedRun {
  const codec::Kernels& kernels;
  std::span<const float> values;
  std::span<float> work;
  int repetitions;
};

double memcpy_rate(std::span<const float> from, std::span<float> to, int repetitions);
// The whole path: rotate, quantise, planes, packets with checks; and back.
CodecSpeed planes_speed(const SpeedRun& run, unsigned precision,
                        wire::Protection protection = wire::Protection::kTags);
// Plain code, whatever the run's kernels are.
CodecSpeed reference_speed(const SpeedRun& run, const codec::reference::ReferenceCodec& codec);

struct SpeedResults {
  double memcpy_gigabytes_per_second = 0.0;
  std::vector<HadamardSpeed> hadamard;
  std::vector<CodecSpeed> codecs;
};

SpeedResults measure_speed(const SpeedOptions& options, Progress& progress);
std::size_t speed_steps();

// ------------------------------------------------------------------ sums

// Speed at which one rank encodes for sums and decodes sums: values to words and back, for a
// group of eight, in rows as long as collective/summed has them. Lanes have room for the sums of
// all eight; the decoded words are one rank's part.

inline constexpr unsigned kSumSpeedRanks = 8;

CodecSpeed levels_speed(const SpeedRun& run, const std::string& name, const codec::LevelCode& code);
CodecSpeed blocks_speed(const SpeedRun& run, const std::string& name);

// The codecs with addable packets that bench codec shows.
std::vector<CodecSpeed> sum_speeds(const SpeedRun& run);

// ------------------------------------------------------------------ entropy-coded numbers

// Size and speed of one rank's values as losslessly coded whole numbers, as collective/entropy
// sends them: directly, or with a prediction of where they are zero. One scale per tensor; rounding
// is to nearest, as with error feedback.
//
// `previous` holds the same tensor's values of the step before, or is empty. The coder uses the
// probabilities of that step's numbers, which need not be sent. If there was no such step, or the
// message's own table would shorten it by 3 %, its own table is sent along and counted.

enum class CodedTable : std::uint8_t { kOwn, kLastStep };
const char* coded_table_name(CodedTable table);  // "own, sent along", "last step's"

struct CodedSpeed {
  CodecSpeed speed;
  CodedTable table;
};

CodedSpeed coded_speed(const SpeedRun& run, unsigned precision, std::span<const float> previous);

// Measures a sketch's second step, after a first with `previous`; empty if it would be dense.
// Values that the sketch does not recover decode to zero.
std::optional<CodedSpeed> sketch_speed(const SpeedRun& run, unsigned precision,
                                       std::span<const float> previous);

// ------------------------------------------------------------------ bits against error

// Compares all codecs on one gradient: bits per value against error, and speed on one core.
// `spillway codec` shows this for a user's own gradient.
//
// Bits are those that one rank sends for its own values: planes with the headers of their packets,
// levels and blocks in lanes with room for sums of eight ranks, the others as messages. Error is
// squared error over energy, of one message. Throughput counts the gradient's bytes, 4 per value;
// that of planes includes making packets and their tags.

struct RateInput {
  std::span<const float> gradient;  // finite
  // The same tensor one step before, as long as the gradient; or empty. Codecs that remember the
  // last step then do without it, or are left out.
  std::span<const float> previous;
};

struct RatePoint {
  std::string family;  // codecs that differ only in bits: a line in a plot
  CodecSpeed speed;
  double nmse;
  std::string table;  // source of an entropy coder's probabilities; else empty
};

struct RateDistortion {
  std::vector<RatePoint> points;  // by family, with decreasing error in each
  std::string left_out;           // a sentence about what is missing; empty if nothing is
};

std::size_t rate_steps();
RateDistortion measure_rates(const RateInput& input, Progress& progress);

// ------------------------------------------------------------------ entropy coders

// Size and speed of lossless codes for 8-bit numbers on one core, Spillway's and its rivals' in the
// same run. Throughput counts one byte per value.
//
// Spillway's coder appears twice: once like the rivals, and once with a receiver that counts
// symbols for the next table.
//
// Samples are gradients quantised to int8 by their largest magnitude, and synthetic distributions.
// Coders that keep a table learn it from another draw, or from the sample's other half.

struct EntropyOptions {
  std::size_t values = std::size_t{1} << 22;
  int repetitions = 9;       // the best one counts
  bool plain_rivals = true;  // include codec/reference: slow, not tuned
  std::string gradients;     // a folder of .f32 files; may be missing
};

struct EntropySample {
  std::string name;
  std::vector<std::int8_t> learned;  // stands for the step before
  std::vector<std::int8_t> values;
};
std::vector<EntropySample> entropy_samples(const EntropyOptions& options);

struct EntropySpeed {
  std::string sample;
  std::string coder;
  std::string target;   // vector instruction set; empty if it uses none
  double entropy_bits;  // per value
  double bits;
  double encode_gigabytes_per_second;
  double decode_gigabytes_per_second;
};

// One step of progress per sample.
std::vector<EntropySpeed> measure_entropy(const std::vector<EntropySample>& samples,
                                          const EntropyOptions& options, Progress& progress);

// Size and speed of lossless codes for floats on one core. Throughput counts 4 or 2 bytes per
// value. zstd and Huff0 get the values' bytes as they lie. Samples are Gaussian values and the
// gradients of the folder, as float32 and rounded to bfloat16.

struct FloatSpeed {
  std::string sample;
  std::string type;
  std::string coder;
  std::string target;  // vector instruction set; empty if it uses none
  double bits;         // per value
  double encode_gigabytes_per_second;
  double decode_gigabytes_per_second;
};

// One step of progress per sample.
std::size_t float_samples(const EntropyOptions& options);
std::vector<FloatSpeed> measure_floats(const EntropyOptions& options, Progress& progress);

// ------------------------------------------------------------------ a GPU

// Speed of the codecs planes and levels on a GPU, beside a device-to-device copy of the same tensor
// in the same run. Throughput counts the tensor's bytes, whatever the output size. The copy is the
// limit for any code that reads and writes as much.
//
// Each figure is the median of several batches, timed by device events. Batches cycle through
// tensors that together exceed any cache.

struct CudaSpeedOptions {
  int ordinal = 0;
  std::vector<std::size_t> tensor_bytes = {std::size_t{64} << 20, std::size_t{256} << 20};
  int batches = 9;
  int launches = 16;  // per batch
};

struct CudaSpeed {
  std::size_t tensor_bytes;
  std::string what;  // "copy", "rotation, rows of 2^13", "planes of float32, ..."
  double encode_gigabytes_per_second;
  double decode_gigabytes_per_second;  // 0 if there is no inverse
  double copy_gigabytes_per_second;    // for the same tensor in the same run
};

struct CudaSpeedResults {
  gpu::DeviceInfo device;
  std::vector<CudaSpeed> speeds;
};

base::Result<CudaSpeedResults> measure_cuda_speed(const CudaSpeedOptions& options);

}  // namespace spillway::bench
