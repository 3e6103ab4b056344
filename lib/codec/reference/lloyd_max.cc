// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/lloyd_max.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/check.h"

namespace spillway::codec::reference {
namespace {

// By symmetry only the positive half is solved: cells [0, t1), [t1, t2), ... [tn, infinity).
using Levels = std::vector<double>;

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

double density(double x) {
  return std::exp(-0.5 * x * x) * (0.5 * std::numbers::inv_sqrtpi * std::numbers::sqrt2);
}

double mass_above(double x) {
  return 0.5 * std::erfc(x / std::numbers::sqrt2);
}

double lower_bound_of(const Levels& levels, std::size_t cell) {
  return cell == 0 ? 0.0 : 0.5 * (levels[cell - 1] + levels[cell]);
}

double upper_bound_of(const Levels& levels, std::size_t cell) {
  return cell + 1 == levels.size() ? kUnbounded : 0.5 * (levels[cell] + levels[cell + 1]);
}

// The mean of N(0, 1) between two bounds, and its derivatives by the bounds.
struct CellMean {
  double mean;
  double per_lower;
  double per_upper;
};

CellMean cell_mean(double lower, double upper) {
  const double mass = mass_above(lower) - mass_above(upper);
  const double mean = (density(lower) - density(upper)) / mass;
  const double per_upper = upper == kUnbounded ? 0.0 : density(upper) * (upper - mean) / mass;
  return {mean, density(lower) * (mean - lower) / mass, per_upper};
}

// One Newton step for mean(cell i) - level i = 0; returns the largest correction. Each equation
// involves only its neighbours. The density is log-concave, so the system is diagonally dominant
// and elimination without pivoting is safe.
double newton_step(Levels& levels) {
  const std::size_t count = levels.size();
  std::vector<double> above(count);  // left by elimination right of the diagonal
  std::vector<double> step(count);
  for (std::size_t i = 0; i < count; ++i) {
    const CellMean cell = cell_mean(lower_bound_of(levels, i), upper_bound_of(levels, i));
    const double left = i == 0 ? 0.0 : -0.5 * cell.per_lower;  // bounds are midpoints
    const double right = -0.5 * cell.per_upper;
    const double diagonal = 1.0 + left + right - (i == 0 ? 0.0 : left * above[i - 1]);
    above[i] = right / diagonal;
    step[i] = (cell.mean - levels[i] - (i == 0 ? 0.0 : left * step[i - 1])) / diagonal;
  }
  double largest = 0.0;
  for (std::size_t i = count; i-- > 0;) {
    step[i] -= i + 1 == count ? 0.0 : above[i] * step[i + 1];
    levels[i] += step[i];
    largest = std::max(largest, std::fabs(step[i]));
  }
  return largest;
}

void solve(Levels& levels) {
  constexpr double kConverged =
      1e-10;  // far below a float's last digit, above the rounding error of 1e-12
  constexpr int kMaxSteps = 20;  // at most 5 are taken
  for (int i = 0; i < kMaxSteps; ++i) {
    if (newton_step(levels) < kConverged) {
      return;
    }
  }
  SPILLWAY_CHECK(!"Lloyd-Max did not converge");
}

// The initial guess for twice as many levels: two in each cell.
Levels split_cells(const Levels& levels) {
  Levels finer;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const double lower = lower_bound_of(levels, i);
    const double reach = std::min(upper_bound_of(levels, i) - levels[i], levels[i] - lower);
    finer.push_back(0.5 * (lower + levels[i]));
    finer.push_back(levels[i] + 0.5 * reach);
  }
  return finer;
}

Quantiser make_quantiser(unsigned bits, const Levels& levels) {
  Quantiser quantiser{bits, {}, {}, 1.0};
  for (std::size_t i = levels.size(); i-- > 0;) {
    quantiser.centroids.push_back(static_cast<float>(-levels[i]));
    quantiser.boundaries.push_back(static_cast<float>(-lower_bound_of(levels, i)));
  }
  quantiser.boundaries.back() = 0.0F;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    if (i > 0) {
      quantiser.boundaries.push_back(static_cast<float>(lower_bound_of(levels, i)));
    }
    quantiser.centroids.push_back(static_cast<float>(levels[i]));
    const double mass =
        mass_above(lower_bound_of(levels, i)) - mass_above(upper_bound_of(levels, i));
    quantiser.distortion -= 2.0 * mass * levels[i] * levels[i];
  }
  return quantiser;
}

std::vector<Quantiser> make_all() {
  std::vector<Quantiser> all;
  Levels levels = {std::sqrt(2.0 * std::numbers::inv_pi)};  // E|z|: one bit, exactly
  for (unsigned bits = 1; bits <= kMaxQuantiserBits; ++bits) {
    if (bits > 1) {
      levels = split_cells(levels);
    }
    solve(levels);
    all.push_back(make_quantiser(bits, levels));
  }
  return all;
}

}  // namespace

std::uint32_t Quantiser::index_of(float z) const {
  // A binary search without branches: 2^bits - 1 boundaries halve evenly.
  std::uint32_t index = 0;
  for (std::uint32_t half = 1U << (bits - 1); half > 0; half /= 2) {
    index += z >= boundaries[index + half - 1] ? half : 0;
  }
  return index;
}

const Quantiser& lloyd_max_quantiser(unsigned bits) {
  SPILLWAY_CHECK(bits >= 1 && bits <= kMaxQuantiserBits);
  static const std::vector<Quantiser> all = make_all();
  return all[bits - 1];
}

}  // namespace spillway::codec::reference
