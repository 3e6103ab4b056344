// SPDX-License-Identifier: Apache-2.0
#include "cli/allreduce_times.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace spillway::cli {
namespace {

double percentile(const std::vector<double>& sorted, std::size_t percent) {
  const std::size_t place = (sorted.size() * percent + 99) / 100;
  return sorted[std::min(sorted.size(), std::max<std::size_t>(place, 1)) - 1];
}

}  // namespace

TimeSummary summarise_times(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const auto count = static_cast<double>(seconds.size());
  TimeSummary summary;
  summary.mean = std::accumulate(seconds.begin(), seconds.end(), 0.0) / count;
  summary.min = seconds.front();
  summary.max = seconds.back();
  summary.p50 = percentile(seconds, 50);
  summary.p99 = percentile(seconds, 99);
  double squares = 0.0;
  for (const double time : seconds) {
    squares += (time - summary.mean) * (time - summary.mean);
  }
  summary.deviation = std::sqrt(squares / count);
  summary.variation_percent = summary.mean > 0.0 ? 100.0 * summary.deviation / summary.mean : 0.0;
  return summary;
}

Bandwidth allreduce_bandwidth(std::size_t bytes, double seconds, unsigned world) {
  const double algorithm = seconds > 0.0 ? static_cast<double>(bytes) / seconds * 1e-9 : 0.0;
  return {algorithm, algorithm * 2.0 * (world - 1) / world};
}

}  // namespace spillway::cli
