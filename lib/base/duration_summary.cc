// SPDX-License-Identifier: Apache-2.0
#include "base/duration_summary.h"

#include <algorithm>

namespace spillway::base {
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

}  // namespace spillway::base
