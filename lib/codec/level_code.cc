// SPDX-License-Identifier: Apache-2.0
#include "codec/level_code.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "codec/lanes.h"
#include "codec/normal_distribution.h"

namespace spillway::codec {
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

}  // namespace spillway::codec
