// SPDX-License-Identifier: Apache-2.0
#include "codec/level_encoder.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "codec/extreme_values.h"
#include "codec/shared_scale.h"

namespace spillway::codec {
namespace {

// Separates these draws from all others under the same key.
constexpr std::uint32_t kDitherDomain = 0x4449'5448U;  // "DITH"
// Coordinates rounded at a time, so that their dither stays in the L1 cache.
constexpr std::size_t kPiece = 2048;
static_assert((std::size_t{1} << kMinRowLog2) / 2 % (2 * kDrawWords) == 0);

std::vector<std::uint32_t> make_cells(const LevelCode& code) {
  std::vector<std::uint32_t> cells(std::size_t{code.range} + 1);
  for (std::size_t i = 0; i + 1 < code.levels.size(); ++i) {
    const std::uint32_t low = code.levels[i];
    const std::uint32_t gap = code.levels[i + 1] - low;
    std::fill_n(cells.begin() + low, gap, gap << 16 | low);
  }
  cells.back() = code.range;
  return cells;
}

void append_zeros(std::span<const float> values, std::span<float> row) {
  const auto end = std::copy(values.begin(), values.end(), row.begin());
  std::fill(end, row.end(), 0.0F);
}

double root_mean_square(const RowMoments& moments, std::size_t length) {
  return std::sqrt(static_cast<double>(moments.sum_squares) / static_cast<double>(length));
}

// Handles a row whose squares do not fit floats, or that is zero or not finite.
RotatedRow rotate_extreme(const Kernels& kernels, std::span<const float> values,
                          unsigned log2_length, RotationId rotation, std::span<float> rotated) {
  const float largest = max_abs(values);
  if (largest == 0.0F || !all_finite(values)) {
    std::fill(rotated.begin(), rotated.end(), 0.0F);
    return {all_finite(values) ? 0.0F : std::numeric_limits<float>::quiet_NaN(), 0};
  }
  const int exponent = std::ilogb(largest);
  append_zeros(values, rotated);
  scale_by_power_of_two(rotated, -exponent);
  const RowMoments moments =
      rotate_first(kernels, rotation, log2_length, rotated.data(), rotated.data());
  return {static_cast<float>(std::ldexp(root_mean_square(moments, rotated.size()), exponent)),
          exponent};
}

}  // namespace

RotatedRow rotate_for_levels(const Kernels& kernels, std::span<const float> values,
                             unsigned log2_length, RotationId rotation, std::span<float> rotated) {
  SPILLWAY_CHECK(log2_length >= kMinRowLog2 && log2_length <= kMaxRowLog2);
  SPILLWAY_CHECK(rotated.size() == std::size_t{1} << log2_length);
  SPILLWAY_CHECK(values.size() <= rotated.size());
  const float* source = values.data();
  if (values.size() < rotated.size()) {
    append_zeros(values, rotated);
    source = rotated.data();
  }
  const RowMoments moments = rotate_first(kernels, rotation, log2_length, source, rotated.data());
  if (!is_safe_energy(moments.sum_squares)) [[unlikely]] {
    return rotate_extreme(kernels, values, log2_length, rotation, rotated);
  }
  return {static_cast<float>(root_mean_square(moments, rotated.size())), 0};
}

double steps_per_unit(const LevelCode& code) {
  return code.range / (2.0 * code.limit);
}

float rounding_factor(double steps_per_unit, const RotatedRow& row, float scale,
                      unsigned log2_length) {
  const double factor = std::ldexp(steps_per_unit, row.exponent) /
                        (scale * rotation_gain(log2_length, kLevelRotations));
  return static_cast<float>(std::min<double>(factor, std::numeric_limits<float>::max()));
}

LevelRounder::LevelRounder(const LevelCode& code, unsigned rank, const Kernels& kernels)
    : kernels_(&kernels),
      range_(static_cast<float>(code.range)),
      steps_per_unit_(steps_per_unit(code)),
      rank_(rank) {
  SPILLWAY_CHECK(code.range >= 1 && code.range <= kMaxLevelRange && code.levels.size() >= 2);
  SPILLWAY_CHECK(code.levels.front() == 0 && code.levels.back() == code.range);
  if (!code.is_uniform()) {
    cells_ = make_cells(code);
  }
}

std::size_t LevelRounder::round(std::span<const float> rotated, const RotatedRow& row, float scale,
                                RotationId rotation, std::span<std::uint32_t> levels) const {
  SPILLWAY_CHECK(levels.size() == rotated.size() && std::has_single_bit(rotated.size()));
  SPILLWAY_CHECK(rotated.size() >= std::size_t{1} << kMinRowLog2);
  if (is_special_scale(scale)) {
    std::fill(levels.begin(), levels.end(), 0);
    return 0;
  }
  const auto log2_length = static_cast<unsigned>(std::countr_zero(rotated.size()));
  const float factor = rounding_factor(steps_per_unit_, row, scale, log2_length);
  const std::uint32_t* const cells = cells_.empty() ? nullptr : cells_.data();
  std::size_t clipped = 0;
  std::array<std::uint32_t, kPiece / 2> dither;
  for (std::size_t at = 0; at < rotated.size(); at += kPiece) {
    const std::size_t count = std::min(kPiece, rotated.size() - at);
    const auto counter = static_cast<std::uint32_t>(at / 8);  // four words of two halves each
    kernels_->draw_words(rotation.key, {counter, rotation.row, rank_, kDitherDomain}, count / 2,
                         dither.data());
    clipped += kernels_->round_levels(rotated.data() + at, count, factor, range_, cells,
                                      dither.data(), levels.data() + at);
  }
  return clipped;
}

}  // namespace spillway::codec
