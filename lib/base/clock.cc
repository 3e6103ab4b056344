// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <algorithm>
#include <chrono>

namespace spillway::base {

Instant MonotonicClock::now() const {
  const auto since_zero = std::chrono::steady_clock::now().time_since_epoch();
  return Instant(
      nanoseconds(std::chrono::duration_cast<std::chrono::nanoseconds>(since_zero).count()));
}

Duration time_of_day() {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return nanoseconds(std::chrono::duration_cast<std::chrono::nanoseconds>(since_1970).count());
}

Duration unix_time_offset() {
  return time_of_day() - MonotonicClock().now().since_zero();
}

namespace {

// The nearest-rank percentile: at least `percent` of the sorted durations do not exceed it.
Duration nearest_rank(const std::vector<Duration>& sorted, std::size_t percent) {
  const std::size_t rank = (sorted.size() * percent + 99) / 100;
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

}  // namespace

DurationSummary summarise(std::vector<Duration> durations) {
  DurationSummary summary;
  summary.count = durations.size();
  if (durations.empty()) {
    return summary;
  }
  std::sort(durations.begin(), durations.end());
  double sum = 0.0;  // a double, because int64 nanoseconds of millions of hours could overflow
  for (const Duration duration : durations) {
    sum += static_cast<double>(duration.count());
  }
  summary.mean = Duration(static_cast<std::int64_t>(sum / durations.size() + 0.5));
  summary.p50 = nearest_rank(durations, 50);
  summary.p99 = nearest_rank(durations, 99);
  summary.max = durations.back();
  return summary;
}

std::size_t TraceLanes::place(Instant start, Instant end) {
  while (!taken_.empty() && taken_.top().first <= start) {
    free_.push(taken_.top().second);
    taken_.pop();
  }
  std::size_t lane = lanes_;
  if (free_.empty()) {
    ++lanes_;
  } else {
    lane = free_.top();
    free_.pop();
  }
  taken_.emplace(end, lane);
  return lane;
}

}  // namespace spillway::base
