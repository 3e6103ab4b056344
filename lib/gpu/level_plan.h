// SPDX-License-Identifier: Apache-2.0
//
// Parameters of the levels kernels for rows and chunks. The host computes them with the codec's
// arithmetic, because they are few.
//
// Pure values; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collective/device_tensor.h"
#include "gpu/kernels/arguments.h"

namespace spillway::gpu {

// Coordinates of all rows, padding included, and words of their chunks.
std::size_t coordinates_of(const codec::RowLayout& rows);
std::size_t words_of(const collective::DeviceLevels& levels);

inline Lanes lanes_of(const codec::LaneLayout& lanes) {
  return {lanes.bits, lanes.lanes};
}

// Rounding parameters of each row.
std::vector<LevelRow> rounded_rows(const collective::DeviceLevels& levels,
                                   std::span<const codec::RotatedRow> rows,
                                   std::span<const float> scales);

// Decoding parameters of each row of sums. Rows marked in `forgotten` (may be empty) become zero,
// whatever their sums.
std::vector<LevelRow> decoded_rows(const collective::DeviceLevels& levels,
                                   const collective::DeviceLevelSums& sums,
                                   const std::vector<bool>& forgotten);

std::vector<ChunkShare> chunk_shares(const collective::DeviceLevels& levels,
                                     const collective::DeviceLevelSums& sums);

}  // namespace spillway::gpu
