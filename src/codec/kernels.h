// SPDX-License-Identifier: Apache-2.0
//
// The inner loops of the plane codec, as a table of functions chosen once per process.
//
// The scalar table is the oracle: every other table gives the same bits for the same input, which
// is what lets an x86 sender and an Arm receiver agree (tests and a fuzzer compare them). Two
// rules keep that true: sums run over kAccumulators fixed lanes combined in a fixed order, and
// where a product meets a sum, the code says whether they are fused, never the compiler.
//
// Lengths are counts of floats: rows are 2^8 .. 2^15, packet spans multiples of kSpanQuantum.
// Kernels touch only the memory named here, allocate nothing, and may run on any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "codec/plane_code.h"

namespace spillway::codec {

// Coordinates of a packet come in multiples of this; planes are then whole 32-bit words.
inline constexpr std::size_t kSpanQuantum = 32;
// Planes are cut from blocks of this many coordinates. Inside a block of m coordinates, bit k
// (from the least significant) of a plane's byte i belongs to coordinate k * (m / 8) + i.
inline constexpr std::size_t kPlaneBlock = 128;
// Lanes over which sums are kept, whatever the width of a vector.
inline constexpr std::size_t kAccumulators = 16;

// Random words are drawn in groups of so many counters: word w of counter 8c + k is number
// 32c + 8w + k.
inline constexpr std::uint32_t kDrawCounters = 8;
inline constexpr std::size_t kDrawWords = 4 * kDrawCounters;

struct RowMoments {
  float sum_squares;
  float max_square;
};

struct Kernels {
  std::string_view name;

  // The unnormalised Walsh-Hadamard transform H of 2^log2_length values, in place. Butterflies run
  // from neighbours outwards: the order of additions is part of the wire format.
  void (*hadamard)(float* row, unsigned log2_length);

  // row <- H D row. D flips the sign of coordinate i where bit i % 32 of sign_words[i / 32] is set.
  void (*rotate)(float* row, unsigned log2_length, const std::uint32_t* sign_words);

  // The same from `source` into `row` (which may be the same), measuring `source` on the way. A NaN
  // or an infinity shows up in sum_squares.
  RowMoments (*measure_and_rotate)(const float* source, float* row, unsigned log2_length,
                                   const std::uint32_t* sign_words);

  // row <- factor * D H row.
  void (*unrotate)(float* row, unsigned log2_length, const std::uint32_t* sign_words, float factor);

  // Codes of row[i] * inverse_scale: `high` gets planes 0..7 of each coordinate, `low` planes
  // 8..15. Returns the largest |row[i] * inverse_scale|; codes saturate beyond kMaxMagnitude.
  float (*quantise)(const float* row, std::size_t count, float inverse_scale, std::uint8_t* high,
                    std::uint8_t* low);

  // Planes 16..23 and 24..31 of the same coordinates, given the first sixteen.
  void (*refine)(const float* row, std::size_t count, float inverse_scale, const std::uint8_t* high,
                 const std::uint8_t* low, std::uint8_t* third, std::uint8_t* fourth);

  // Eight planes of `count` coordinates from one byte each: plane p goes to
  // planes + p * plane_stride. Only the first `wanted` (1..8) planes are written.
  void (*split_planes)(const std::uint8_t* codes, std::size_t count, unsigned wanted,
                       std::uint8_t* planes, std::size_t plane_stride);

  // The inverse; planes that are not `present` read as zero.
  void (*merge_planes)(const std::uint8_t* planes, std::size_t plane_stride, unsigned present,
                       std::size_t count, std::uint8_t* codes);

  // Values of codes with exactly `planes` (9..16) planes present, the rest zero.
  void (*dequantise)(const std::uint8_t* high, const std::uint8_t* low, std::size_t count,
                     unsigned planes, float* values);

  // Values of codes with exactly `planes` (17..32) planes present, the rest zero.
  void (*dequantise_refined)(const std::uint8_t* high, const std::uint8_t* low,
                             const std::uint8_t* third, const std::uint8_t* fourth,
                             std::size_t count, unsigned planes, float* values);

  // Random words of the stream `key` (base/random.h) from `counter` on, whose first word counts up.
  // `count` is a multiple of 2 * kDrawWords.
  void (*draw_words)(std::uint64_t key, base::RandomBlock counter, std::size_t count,
                     std::uint32_t* words);

  // Levels of row[i] (codec/level_code.h), `count` a multiple of kSpanQuantum. In steps of the
  // range, x = fma(row[i], factor, range / 2) clamped to [0, range] lies between two levels, and
  // becomes the upper one if it is further from the lower than (d + 1/2) / 2^16 of their distance;
  // d is half h of dither[8b + k] for i = 16b + 8h + k, the low half first. `cells` has an entry
  // for each integer up to the range, distance << 16 | level: the largest level up to there, and
  // how far the next one is. Without cells every integer is a level. Returns how many were clamped.
  std::size_t (*round_levels)(const float* row, std::size_t count, float factor, float range,
                              const std::uint32_t* cells, const std::uint32_t* dither,
                              std::uint32_t* levels);
};

// The oracle.
const Kernels& scalar_kernels();

// The fastest table this CPU runs, or the one that SPILLWAY_SIMD names if the CPU runs it. Decided
// at the first call; a name that there is not is an error elsewhere (base::check), where one can be
// returned.
const Kernels& best_kernels();

// Every table this CPU runs, fastest first; the scalar one is last.
const std::vector<const Kernels*>& available_kernels();

}  // namespace spillway::codec
