// SPDX-License-Identifier: Apache-2.0
#include "emulate/stage/virtual_arrivals.h"

#include <algorithm>
#include <cmath>

namespace spillway::emulate {
namespace {

constexpr double kMedianOfNormal = 0.67449;  // median magnitude of a standard normal number
constexpr double kLeastUnit = 1e-6;
constexpr double kMostSpreads = 8.0;

}  // namespace

base::Instant SpreadProfile::learn(std::span<const base::Instant> arrivals) {
  double sum = 0.0;
  for (const base::Instant at : arrivals) {
    sum += static_cast<double>((at - arrivals.front()).count());
  }
  const auto count = static_cast<double>(arrivals.size());
  const double mean = sum / count;
  if (arrivals.size() > 1) {
    const double hidden = std::sqrt(count / (count - 1.0));
    for (const base::Instant at : arrivals) {
      off_.push_back(hidden * (static_cast<double>((at - arrivals.front()).count()) - mean));
    }
    while (off_.size() > kRemembered) {
      off_.pop_front();
    }
  }
  return arrivals.front() + base::nanoseconds(static_cast<std::int64_t>(mean));
}

base::Duration SpreadProfile::latest_of(std::uint64_t ranks, double unit) const {
  if (off_.size() < kLeast || ranks == 0) {
    return {};
  }
  std::vector<double> sizes;
  for (const double off : off_) {
    sizes.push_back(std::abs(off));
  }
  const auto middle = sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() / 2);
  std::nth_element(sizes.begin(), middle, sizes.end());
  const double spread = *middle / kMedianOfNormal;
  const double drawn = std::clamp(unit, kLeastUnit, 1.0 - kLeastUnit);
  const double quantile = std::pow(drawn, 1.0 / static_cast<double>(ranks));
  return base::nanoseconds(static_cast<std::int64_t>(spread * normal_quantile(quantile)));
}

// Bisects the library's distribution function; 60 steps give full precision.
double normal_quantile(double p) {
  double low = -kMostSpreads;
  double high = kMostSpreads;
  for (int step = 0; step < 60; ++step) {
    const double middle = 0.5 * (low + high);
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

SlowRanks::SlowRanks(std::vector<SlowRank> ranks) {
  for (const SlowRank& slow : ranks) {
    ranks_.push_back({slow, 0.0});
  }
}

void SlowRanks::computed_until(base::Instant at) {
  if (seen_ && at > *seen_) {
    const auto computed = static_cast<double>((at - *seen_).count());
    for (Behind& behind : ranks_) {
      behind.lag_ns = std::max(0.0, behind.lag_ns + (behind.slow.factor - 1.0) * computed);
    }
  }
  seen_ = seen_ ? std::max(*seen_, at) : at;
}

void SlowRanks::waited(base::Instant began, base::Instant ended) {
  computed_until(began);
  // Two threads may report one wait; it counts once.
  const base::Instant from = std::max(began, *seen_);
  if (ended <= from) {
    return;
  }
  for (Behind& behind : ranks_) {
    behind.lag_ns = std::max(0.0, behind.lag_ns - static_cast<double>((ended - from).count()));
  }
  seen_ = ended;
}

std::optional<base::Duration> SlowRanks::furthest_behind(
    const std::vector<std::uint32_t>& ranks) const {
  std::optional<base::Duration> furthest;
  for (const Behind& behind : ranks_) {
    if (std::binary_search(ranks.begin(), ranks.end(), behind.slow.rank)) {
      const auto lag = base::nanoseconds(static_cast<std::int64_t>(behind.lag_ns));
      furthest = std::max(furthest.value_or(lag), lag);
    }
  }
  return furthest;
}

}  // namespace spillway::emulate
