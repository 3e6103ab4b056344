// SPDX-License-Identifier: Apache-2.0
#include "codec/level_decoder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "codec/lanes.h"
#include "codec/level_encoder.h"
#include "codec/shared_scale.h"

namespace spillway::codec {

// Twice the sum minus its middle is an exact integer; then there is one rounding.
void decode_level_sums(const LevelCode& code, std::span<const std::uint32_t> sums,
                       unsigned contributors, std::span<float> means) {
  SPILLWAY_CHECK(sums.size() == means.size() && contributors <= kMaxContributors);
  if (contributors == 0) {
    std::fill(means.begin(), means.end(), 0.0F);
    return;
  }
  const std::uint32_t middle = contributors * code.range;
  const float unit = 1.0F / static_cast<float>(middle);
  const std::uint32_t* const from = sums.data();
  float* const to = means.data();
  for (std::size_t i = 0; i < sums.size(); ++i) {
    to[i] = static_cast<float>(static_cast<std::int32_t>(2 * from[i] - middle)) * unit;
  }
}

float level_row_factor(const LevelCode& code, float scale, std::size_t length, std::size_t arrived,
                       double weight) {
  const double missing = static_cast<double>(length) / static_cast<double>(arrived);
  const double factor = static_cast<double>(code.limit) * scale * weight * missing;
  return static_cast<float>(std::min<double>(factor, std::numeric_limits<float>::max()));
}

void finish_level_row(const Kernels& kernels, const LevelCode& code, float scale,
                      RotationId rotation, std::size_t arrived, double weight,
                      std::span<float> row) {
  SPILLWAY_CHECK(arrived <= row.size() && std::has_single_bit(row.size()));
  if (arrived == 0 || is_special_scale(scale)) {
    std::fill(row.begin(), row.end(), std::isnan(scale) ? scale : 0.0F);
    return;
  }
  unrotate_row(kernels, rotation, kLevelRotations,
               static_cast<unsigned>(std::countr_zero(row.size())),
               level_row_factor(code, scale, row.size(), arrived, weight), row.data());
}

}  // namespace spillway::codec
