// SPDX-License-Identifier: Apache-2.0
#include "codec/level_code.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "codec/lanes.h"
#include "codec/normal_distribution.h"
#include "codec/rotation.h"

namespace spillway::codec {

// ------------------------------------------------------------------ codes

namespace {

// For finer uniform codes the density of N(0, 1) is nearly flat within a step. Assuming that
// changes their error by less than 1e-4 of it.
constexpr unsigned kFlatRange = 255;
// Clip shares that choose_level_code() tries: 2^-2 .. 2^-24.
constexpr int kFirstClipLog2 = 2;
constexpr int kLastClipLog2 = 24;

// Integrals over N(0, 1) between the integers of a range.
class GridMoments {
 public:
  GridMoments(unsigned range, double limit) : points_(range + 1) {
    for (unsigned i = 0; i <= range; ++i) {
      const double z = (2.0 * i - range) * limit / range;
      const double density = normal_density(z);
      points_[i] = {z, density, normal_mass_from_zero(z), z * density};
    }
  }

  // E[(high - z)(z - low)] for z between two points: the rounding error there.
  double rounding_error(unsigned low, unsigned high) const {
    const Point& a = points_[low];
    const Point& b = points_[high];
    const double mass = b.mass - a.mass;
    const double mean = a.density - b.density;
    const double square = mass - (b.moment - a.moment);
    return (a.z + b.z) * mean - square - a.z * b.z * mass;
  }

 private:
  struct Point {
    double z;
    double density;
    double mass;  // from zero
    double moment;
  };
  std::vector<Point> points_;
};

// The best placements of the lower levels, by the position of the last one in the lower half.
struct Placement {
  std::vector<double> error;
  std::vector<std::uint16_t> previous;  // position of the level before the last
};

// Adds one more level. Among equally good placements the lower previous level wins.
Placement extend(const Placement& shorter, const GridMoments& moments) {
  const std::size_t points = shorter.error.size();
  Placement longer{std::vector<double>(points, std::numeric_limits<double>::infinity()),
                   std::vector<std::uint16_t>(points)};
  for (unsigned last = 1; last < points; ++last) {
    for (unsigned before = 0; before < last; ++before) {
      const double error = shorter.error[before] + moments.rounding_error(before, last);
      if (error < longer.error[last]) {
        longer.error[last] = error;
        longer.previous[last] = static_cast<std::uint16_t>(before);
      }
    }
  }
  return longer;
}

// The best position of the uppermost lower level; its mirror image is the next level.
std::uint16_t best_middle(const Placement& lower, const GridMoments& moments, unsigned range) {
  std::uint16_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (unsigned last = 0; last < lower.error.size(); ++last) {
    const double error = 2.0 * lower.error[last] + moments.rounding_error(last, range - last);
    if (error < least) {
      least = error;
      best = static_cast<std::uint16_t>(last);
    }
  }
  return best;
}

std::vector<std::uint16_t> best_levels(std::size_t count, unsigned range, double limit) {
  const GridMoments moments(range, limit);
  std::vector<Placement> placements(1);
  placements[0].error.assign((range + 1) / 2, std::numeric_limits<double>::infinity());
  placements[0].error[0] = 0.0;
  while (placements.size() < count / 2) {
    placements.push_back(extend(placements.back(), moments));
  }
  std::vector<std::uint16_t> levels(count);
  std::uint16_t level = best_middle(placements.back(), moments, range);
  for (std::size_t i = count / 2; i-- > 0;) {
    levels[i] = level;
    levels[count - 1 - i] = static_cast<std::uint16_t>(range - level);
    level = i > 0 ? placements[i].previous[level] : level;
  }
  return levels;
}

double rounding_error(const LevelCode& code) {
  if (code.is_uniform() && code.range > kFlatRange) {
    const double step = 2.0 * code.limit / code.range;
    return step * step / 6.0 * (1.0 - code.clip_share);
  }
  const GridMoments moments(code.range, code.limit);
  double error = 0.0;
  for (std::size_t i = 1; i < code.levels.size(); ++i) {
    error += moments.rounding_error(code.levels[i - 1], code.levels[i]);
  }
  return error;
}

// E[(|z| - limit)^2] over |z| beyond the limit.
double clipping_error(double limit) {
  const double beyond = 1.0 - 2.0 * normal_mass_from_zero(limit);
  return (1.0 + limit * limit) * beyond - 2.0 * limit * normal_density(limit);
}

// The largest range that allows as many lanes as 2^bits levels per rank.
unsigned widest_range(unsigned bits, unsigned contributors) {
  const auto layout = LaneLayout::make(contributors, (1U << bits) - 1);
  SPILLWAY_CHECK(layout.ok());
  const unsigned room = std::min(64 / layout->lanes, kMaxLaneBits);
  const std::uint64_t range = ((std::uint64_t{1} << room) - 1) / contributors;
  return static_cast<unsigned>(std::min<std::uint64_t>(range, kMaxLevelRange));
}

}  // namespace

double clip_limit(double clip_share) {
  SPILLWAY_CHECK(clip_share > 0.0 && clip_share < 1.0);
  double low = 0.0;
  double high = 8.0;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2.0;
    const bool inside = 2.0 * normal_mass_from_zero(middle) < 1.0 - clip_share;
    (inside ? low : high) = middle;
  }
  return low;
}

LevelCode uniform_level_code(unsigned range, double clip_share) {
  SPILLWAY_CHECK(range >= 1 && range <= kMaxLevelRange);
  LevelCode code{range, clip_share, static_cast<float>(clip_limit(clip_share)), {}};
  code.levels.resize(std::size_t{range} + 1);
  std::iota(code.levels.begin(), code.levels.end(), std::uint16_t{0});
  return code;
}

LevelCode find_level_code(unsigned bits, unsigned range, double clip_share) {
  SPILLWAY_CHECK(bits >= 1 && bits <= kMaxLevelBits);
  SPILLWAY_CHECK(range >= (1U << bits) - 1 && range <= kMaxSearchRange);
  const double limit = clip_limit(clip_share);
  return {range, clip_share, static_cast<float>(limit),
          best_levels(std::size_t{1} << bits, range, limit)};
}

LevelCode choose_level_code(unsigned bits, unsigned contributors) {
  SPILLWAY_CHECK(bits >= 1 && bits <= kMaxLevelBits);
  SPILLWAY_CHECK(contributors >= 1 && contributors <= kMaxContributors);
  const unsigned range = widest_range(bits, contributors);
  LevelCode best;
  double least = std::numeric_limits<double>::infinity();
  for (int log2 = kFirstClipLog2; log2 <= kLastClipLog2; ++log2) {
    LevelCode code = uniform_level_code(range, 1.0 / (1U << log2));
    const LevelError error = expected_level_error(code);
    if (error.rounding / contributors + error.clipping < least) {
      least = error.rounding / contributors + error.clipping;
      best = std::move(code);
    }
  }
  return best;
}

LevelError expected_level_error(const LevelCode& code) {
  return {rounding_error(code), clipping_error(code.limit)};
}

// ------------------------------------------------------------------ encoding

namespace {

// Separates these draws from all others under the same key.
constexpr std::uint32_t kDitherDomain = 0x4449'5448U;  // "DITH"
// Coordinates rounded at a time, so that their dither stays in the L1 cache.
constexpr std::size_t kDitherPiece = 2048;
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
  std::array<std::uint32_t, kDitherPiece / 2> dither;
  for (std::size_t at = 0; at < rotated.size(); at += kDitherPiece) {
    const std::size_t count = std::min(kDitherPiece, rotated.size() - at);
    const auto counter = static_cast<std::uint32_t>(at / 8);  // four words of two halves each
    kernels_->draw_words(rotation.key, {counter, rotation.row, rank_, kDitherDomain}, count / 2,
                         dither.data());
    clipped += kernels_->round_levels(rotated.data() + at, count, factor, range_, cells,
                                      dither.data(), levels.data() + at);
  }
  return clipped;
}

// ------------------------------------------------------------------ decoding

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
