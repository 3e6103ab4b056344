// SPDX-License-Identifier: Apache-2.0
//
// Sums of levels back into the mean of those who contributed.
//
// Two steps, as chunks of a row may have sums of different ranks: decode_level_sums() turns a run
// of sums into means of its contributors, and finish_level_row() rotates a row of such means back.
// A run of which no rank's part came is zero and counts as missing: the others of its row make up
// for it (docs/algorithms.md, "Missing coordinates").
//
// One rank's own levels decode like a sum of one contributor: what error feedback subtracts.
//
// Stateless; any thread. Ranks that decode the same sums get the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/kernels.h"
#include "codec/level_code.h"
#include "codec/rotation.h"

namespace spillway::codec {

// Means of rotated coordinates in units of scale * limit, from sums of `contributors` ranks; zeros
// where there are none. `sums` and `means` are as long as each other.
void decode_level_sums(const LevelCode& code, std::span<const std::uint32_t> sums,
                       unsigned contributors, std::span<float> means);

// What means of a row of so many coordinates, of which so many arrived, are multiplied by to be
// values, the rotation aside.
float level_row_factor(const LevelCode& code, float scale, std::size_t length, std::size_t arrived,
                       double weight);

// Means of a whole row back into values, in place, times `weight`: 1 for the mean, the number of
// ranks for a sum. `scale` is the one that ranks rounded with, `arrived` says how many coordinates
// had contributors; with none, or with a scale of 0, the row is zero. A scale of NaN gives NaN.
void finish_level_row(const Kernels& kernels, const LevelCode& code, float scale,
                      RotationId rotation, std::size_t arrived, double weight,
                      std::span<float> row);

}  // namespace spillway::codec
