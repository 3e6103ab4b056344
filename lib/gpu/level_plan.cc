// SPDX-License-Identifier: Apache-2.0
#include "gpu/level_plan.h"

#include <algorithm>
#include <cmath>

#include "codec/level_decoder.h"
#include "codec/rotation.h"
#include "codec/shared_scale.h"

namespace spillway::gpu {
namespace {

static_assert(kLaneWords == codec::kChunkWords);
static_assert(codec::kLevelRotations == 1);

// Coordinates of a row that lie in chunks with contributors.
std::size_t arrived_of(const codec::Row& row, std::size_t per_chunk,
                       std::span<const unsigned> contributors) {
  const std::size_t end = row.offset + row.length();
  std::size_t arrived = 0;
  for (std::size_t first = row.offset; first < end;) {
    const std::size_t chunk = first / per_chunk;
    const std::size_t until = std::min(end, (chunk + 1) * per_chunk);
    arrived += contributors[chunk] > 0 ? until - first : 0;
    first = until;
  }
  return arrived;
}

}  // namespace

std::size_t coordinates_of(const codec::RowLayout& rows) {
  const codec::Row last = rows.row(rows.row_count() - 1);
  return last.offset + last.length();
}

std::size_t words_of(const collective::DeviceLevels& levels) {
  return levels.lanes.chunks_for(coordinates_of(levels.rows)) * codec::kChunkWords;
}

std::vector<LevelRow> rounded_rows(const collective::DeviceLevels& levels,
                                   std::span<const codec::RotatedRow> rows,
                                   std::span<const float> scales) {
  const double steps = codec::steps_per_unit(*levels.code);
  std::vector<LevelRow> rounded;
  for (std::size_t i = 0; i < levels.rows.row_count(); ++i) {
    if (codec::is_special_scale(scales[i])) {
      rounded.push_back({0.0F, 0, LevelRowKind::kNothing});
      continue;
    }
    const unsigned log2_length = levels.rows.row(i).log2_length;
    const bool is_finite = !std::isnan(rows[i].measure);
    rounded.push_back({codec::rounding_factor(steps, rows[i], scales[i], log2_length),
                       rows[i].exponent, is_finite ? LevelRowKind::kValues : LevelRowKind::kAlike});
  }
  return rounded;
}

std::vector<LevelRow> decoded_rows(const collective::DeviceLevels& levels,
                                   const collective::DeviceLevelSums& sums,
                                   const std::vector<bool>& forgotten) {
  std::vector<LevelRow> decoded;
  for (std::size_t i = 0; i < levels.rows.row_count(); ++i) {
    const codec::Row row = levels.rows.row(i);
    const float scale = sums.scales[i];
    const std::size_t arrived =
        sums.makes_up ? arrived_of(row, levels.lanes.values_per_chunk(), sums.contributors)
                      : row.length();
    if (!forgotten.empty() && forgotten[i]) {
      decoded.push_back({0.0F, 0, LevelRowKind::kForgotten});
    } else if (arrived == 0 || codec::is_special_scale(scale)) {
      decoded.push_back({std::isnan(scale) ? scale : 0.0F, 0, LevelRowKind::kAlike});
    } else {
      const float factor =
          codec::level_row_factor(*levels.code, scale, row.length(), arrived, sums.weight);
      decoded.push_back(
          {codec::unrotation_step(row.log2_length, factor), 0, LevelRowKind::kValues});
    }
  }
  return decoded;
}

std::vector<ChunkShare> chunk_shares(const collective::DeviceLevels& levels,
                                     const collective::DeviceLevelSums& sums) {
  std::vector<ChunkShare> shares;
  for (const unsigned contributors : sums.contributors) {
    const unsigned middle = contributors * levels.code->range;
    shares.push_back({middle, middle == 0 ? 0.0F : 1.0F / static_cast<float>(middle)});
  }
  return shares;
}

}  // namespace spillway::gpu
