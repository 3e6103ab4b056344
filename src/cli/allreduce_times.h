// SPDX-License-Identifier: Apache-2.0
//
// What the times of a benchmark's iterations come to. Percentiles are the nearest rank, as in
// nccl-tests. Pure functions.
#pragma once

#include <cstddef>
#include <vector>

namespace spillway::cli {

struct TimeSummary {
  double mean = 0.0;  // seconds, all of them but the last
  double min = 0.0;
  double max = 0.0;
  double p50 = 0.0;
  double p99 = 0.0;
  double deviation = 0.0;          // standard
  double variation_percent = 0.0;  // deviation over mean
};

// At least one time.
TimeSummary summarise_times(std::vector<double> seconds);

struct Bandwidth {
  double algorithm = 0.0;  // gigabytes a second: the buffer over the time
  double bus = 0.0;        // times 2 (n - 1) / n: what each rank's link carries
};

Bandwidth allreduce_bandwidth(std::size_t bytes, double seconds, unsigned world);

}  // namespace spillway::cli
