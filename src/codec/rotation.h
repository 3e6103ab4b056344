// SPDX-License-Identifier: Apache-2.0
//
// The seeded random rotation of a row: x -> H D x / sqrt(n), D a diagonal of random signs, H the
// Walsh-Hadamard matrix. It spreads every value over the whole row, so that each coordinate looks
// like a draw from a Gaussian and a lost packet costs every value a little instead of costing a few
// values everything. It is orthogonal: lengths are kept, and the inverse is D H / sqrt(n).
//
// One round suffices while no value carries more than kMaxEnergyShare of the row's energy; spikier
// rows (a single non-zero, say, whose one-round rotation is +-constant) take a second round with
// fresh signs. The number of rounds travels with the row.
//
// Signs are a pure function of (key, row, round, coordinate), see base/random.h: the sign of
// coordinate i is bit i % 32 of word i / 32 of the stream at {block, row, round, domain}.
//
// SignWords is scratch of one thread; everything else is stateless.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/kernels.h"

namespace spillway::codec {

inline constexpr unsigned kMinRowLog2 = 8;
inline constexpr unsigned kMaxRowLog2 = 15;
inline constexpr std::size_t kMaxRowLength = std::size_t{1} << kMaxRowLog2;
inline constexpr unsigned kMaxRotations = 3;

// Where one coordinate holds a share e of the energy, one round leaves a one-plane estimate of it
// off by about 0.36 e, so this keeps the bias of any row near half a percent of its norm.
inline constexpr float kMaxEnergyShare = 1.0F / 64.0F;

// Which rotation: a message's key and the row inside the message.
struct RotationId {
  std::uint64_t key;
  std::uint32_t row;
};

using SignWords = std::array<std::uint32_t, kMaxRowLength / 32>;

void draw_signs(RotationId id, unsigned round, unsigned log2_length, SignWords& words);

// row <- (H D)^rounds row, unnormalised: it grows by sqrt(n) each round. Rounds are numbered from
// `first_round`, so that a row can be taken further.
void rotate_row(const Kernels& kernels, RotationId id, unsigned first_round, unsigned rounds,
                unsigned log2_length, float* row);

// The first round, from `source` into `row` (which may be the same), measuring `source`.
RowMoments rotate_first(const Kernels& kernels, RotationId id, unsigned log2_length,
                        const float* source, float* row);

// The inverse of `rounds` normalised rounds, times `factor`.
void unrotate_row(const Kernels& kernels, RotationId id, unsigned rounds, unsigned log2_length,
                  float factor, float* row);

// What the last step of that multiplies by, the rotation being taken back but for its length.
float unrotation_step(unsigned log2_length, float factor);

// sqrt(2^(log2_length * rounds)): what `rounds` unnormalised rounds multiply lengths by.
double rotation_gain(unsigned log2_length, unsigned rounds);

}  // namespace spillway::codec
