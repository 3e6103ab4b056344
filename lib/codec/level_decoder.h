// SPDX-License-Identifier: Apache-2.0
//
// Sums of levels back to the mean of their contributors.
//
// There are two steps, because chunks of a row may have sums of different ranks.
// decode_level_sums() turns a run of sums into means of its contributors. finish_level_row()
// rotates a row of such means back. A run without contributors is zero and counts as missing; the
// rest of its row makes up for it (docs/algorithms.md, "Missing coordinates").
//
// A rank's own levels decode like a sum of one contributor; error feedback subtracts that.
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
// without contributors. `sums` and `means` have equal lengths.
void decode_level_sums(const LevelCode& code, std::span<const std::uint32_t> sums,
                       unsigned contributors, std::span<float> means);

// The factor that turns a row's means into values, without the rotation: the row has `length`
// coordinates, of which `arrived` have contributors.
float level_row_factor(const LevelCode& code, float scale, std::size_t length, std::size_t arrived,
                       double weight);

// Turns the means of a whole row back into values, in place, times `weight`: 1 for the mean, the
// number of ranks for a sum. `scale` is the one that ranks rounded with. `arrived` is the number of
// coordinates with contributors. If it or the scale is 0, the row is zero. A scale of NaN gives
// NaN.
void finish_level_row(const Kernels& kernels, const LevelCode& code, float scale,
                      RotationId rotation, std::size_t arrived, double weight,
                      std::span<float> row);

}  // namespace spillway::codec
