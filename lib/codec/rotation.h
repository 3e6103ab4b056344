// SPDX-License-Identifier: Apache-2.0
//
// The seeded random rotation of a row: x -> H D x / sqrt(n), where D is a diagonal of random signs
// and H the Walsh-Hadamard matrix. It spreads every value over the whole row, so each coordinate
// looks like a Gaussian draw. A lost packet then costs every value a little instead of erasing a
// few. The rotation is orthogonal: it keeps lengths, and its inverse is D H / sqrt(n).
//
// One round suffices while no value carries more than kMaxEnergyShare of the row's energy. Spikier
// rows take a second round with fresh signs; one round turns a single non-zero value into a
// constant up to signs. The number of rounds travels with the row.
//
// Signs are a pure function of (key, row, round, coordinate), see base/random.h. The sign of
// coordinate i is bit i % 32 of word i / 32 of the stream at {block, row, round, domain}.
//
// SignWords is one thread's scratch memory; everything else is stateless.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/kernels.h"

namespace spillway::codec {

inline constexpr unsigned kMinRowLog2 = 8;
inline constexpr unsigned kMaxRowLog2 = 15;
inline constexpr std::size_t kMaxRowLength = std::size_t{1} << kMaxRowLog2;
inline constexpr unsigned kMaxRotations = 3;

// If one coordinate holds a share e of the energy, one round biases its one-plane estimate by about
// 0.36 e. This limit keeps the bias of any row near half a percent of its norm.
inline constexpr float kMaxEnergyShare = 1.0F / 64.0F;

// Names a rotation: the message's key and the row within the message.
struct RotationId {
  std::uint64_t key;
  std::uint32_t row;
};

using SignWords = std::array<std::uint32_t, kMaxRowLength / 32>;

void draw_signs(RotationId id, unsigned round, unsigned log2_length, SignWords& words);

// row <- (H D)^rounds row, unnormalised: it grows by sqrt(n) each round. Rounds are numbered from
// `first_round`, so that more rounds can follow later.
void rotate_row(const Kernels& kernels, RotationId id, unsigned first_round, unsigned rounds,
                unsigned log2_length, float* row);

// The first round, from `source` into `row` (which may be equal); also measures `source`.
RowMoments rotate_first(const Kernels& kernels, RotationId id, unsigned log2_length,
                        const float* source, float* row);

// The inverse of `rounds` normalised rounds, times `factor`.
void unrotate_row(const Kernels& kernels, RotationId id, unsigned rounds, unsigned log2_length,
                  float factor, float* row);

// The factor of the last inverse round: `factor` and one round's normalisation.
float unrotation_step(unsigned log2_length, float factor);

// sqrt(2^(log2_length * rounds)): the growth of lengths in `rounds` unnormalised rounds.
double rotation_gain(unsigned log2_length, unsigned rounds);

// ------------------------------------------------------------------ extreme values
//
// Rows with extreme values are divided by the power of two of their largest value, before they can
// be squared, summed and rotated in floats.

// True if a sum of squares neither overflowed nor lost small terms to denormals.
inline bool is_safe_energy(float sum_squares) {
  return sum_squares >= 1e-24F && sum_squares <= 1e+30F;
}

inline bool all_finite(std::span<const float> values) {
  for (const float value : values) {
    if (!std::isfinite(value)) {
      return false;
    }
  }
  return true;
}

inline float max_abs(std::span<const float> values) {
  float largest = 0.0F;
  for (const float value : values) {
    largest = std::fabs(value) > largest ? std::fabs(value) : largest;
  }
  return largest;
}

inline void scale_by_power_of_two(std::span<float> values, int exponent) {
  for (float& value : values) {
    value = std::ldexp(value, exponent);
  }
}

}  // namespace spillway::codec
