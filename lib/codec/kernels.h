// SPDX-License-Identifier: Apache-2.0
//
// The inner loops of the planes and levels codes, as a table of functions chosen once per process.
//
// The scalar table is the oracle. Every other table gives the same bits for the same input, so that
// an x86 sender and an Arm receiver agree (tests and a fuzzer compare them). Two rules ensure that.
// Sums run over kAccumulators fixed lanes, combined in a fixed order. Fused multiply-adds are
// written out and never left to the compiler.
//
// kernels.cc holds the scalar table and the choice; kernels_highway.cc compiles the -inl.h files,
// the same loops on vectors, once per instruction set.
//
// Lengths are counts of floats: rows have 2^8 .. 2^15, packet spans are multiples of kSpanQuantum.
// Kernels touch only the memory in their arguments, allocate nothing, and may run on any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "codec/plane_code.h"

namespace spillway::codec {

// Coordinates of a packet come in multiples of this; planes are then whole 32-bit words.
inline constexpr std::size_t kSpanQuantum = 32;
// Planes are formed from blocks of this many coordinates. In a block of m coordinates, bit k (from
// the least significant) of a plane's byte i belongs to coordinate k * (m / 8) + i.
inline constexpr std::size_t kPlaneBlock = 128;
// Lanes of partial sums, whatever the vector width.
inline constexpr std::size_t kAccumulators = 16;

// Random words are drawn in groups of this many counters: word w of counter 8c + k is number 32c +
// 8w + k.
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

  // The same from `source` into `row` (which may be equal), and measures `source`. A NaN or an
  // infinity shows up in sum_squares.
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

  // Builds eight planes of `count` coordinates from one byte each: plane p goes to planes + p *
  // plane_stride. Only the first `wanted` (1..8) planes are written.
  void (*split_planes)(const std::uint8_t* codes, std::size_t count, unsigned wanted,
                       std::uint8_t* planes, std::size_t plane_stride);

  // The inverse of split_planes. Planes beyond `present` read as zero.
  void (*merge_planes)(const std::uint8_t* planes, std::size_t plane_stride, unsigned present,
                       std::size_t count, std::uint8_t* codes);

  // Values of codes with exactly `planes` (9..16) planes; absent planes are zero.
  void (*dequantise)(const std::uint8_t* high, const std::uint8_t* low, std::size_t count,
                     unsigned planes, float* values);

  // Values of codes with exactly `planes` (17..32) planes; absent planes are zero.
  void (*dequantise_refined)(const std::uint8_t* high, const std::uint8_t* low,
                             const std::uint8_t* third, const std::uint8_t* fourth,
                             std::size_t count, unsigned planes, float* values);

  // Random words of the stream `key` (base/random.h), starting at `counter`, whose first word
  // counts up. `count` is a multiple of 2 * kDrawWords.
  void (*draw_words)(std::uint64_t key, base::RandomBlock counter, std::size_t count,
                     std::uint32_t* words);

  // Levels of row[i] (codec/level_code.h); `count` is a multiple of kSpanQuantum. In steps of the
  // range, x = fma(row[i], factor, range / 2), clamped to [0, range], lies between two levels. It
  // becomes the upper one if its distance from the lower exceeds (d + 1/2) / 2^16 of their
  // distance. Here d is half h of dither[8b + k] for i = 16b + 8h + k; half 0 is the low one.
  // `cells` has an entry distance << 16 | level for each integer up to the range: the largest level
  // not above it, and the distance to the next level. Without cells every integer is a level.
  // Returns how many values were clamped.
  std::size_t (*round_levels)(const float* row, std::size_t count, float factor, float range,
                              const std::uint32_t* cells, const std::uint32_t* dither,
                              std::uint32_t* levels);
};

// The oracle.
const Kernels& scalar_kernels();

// The fastest table for this CPU, or the one named by SPILLWAY_SIMD if the CPU can run it. Decided
// on the first call. base::check reports an unknown name, because this function cannot return an
// error.
const Kernels& best_kernels();

// All tables that this CPU can run, fastest first; the scalar one is last.
const std::vector<const Kernels*>& available_kernels();

// ------------------------------------------------------------------ shared by the tables, private
// to them

// Combines lane sums in the fixed order: adds the upper half to the lower until one is left.
inline float combine_lanes(std::array<float, kAccumulators> sums) {
  for (std::size_t width = kAccumulators / 2; width > 0; width /= 2) {
    for (std::size_t lane = 0; lane < width; ++lane) {
      sums[lane] += sums[lane + width];
    }
  }
  return sums[0];
}

// The sign bits of four neighbouring coordinates as masks over their floats.
struct SignMasks {
  alignas(16) std::array<std::array<std::uint32_t, 4>, 16> nibble;
};

inline constexpr SignMasks kSignMasks = [] {
  SignMasks masks{};
  for (std::uint32_t bits = 0; bits < 16; ++bits) {
    for (std::uint32_t lane = 0; lane < 4; ++lane) {
      masks.nibble[bits][lane] = (bits >> lane & 1U) << 31;
    }
  }
  return masks;
}();

// The Highway tables that this CPU can run, fastest first. Exists only in builds with Highway.
std::vector<const Kernels*> highway_kernels();

}  // namespace spillway::codec
