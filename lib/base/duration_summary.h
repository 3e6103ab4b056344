// SPDX-License-Identifier: Apache-2.0
//
// Summarises durations: count, mean, median, 99th percentile, longest. Percentiles are
// nearest-rank, so each is one of the durations. Without durations all figures are zero.
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.h"

namespace spillway::base {

struct DurationSummary {
  std::uint64_t count = 0;
  Duration mean;
  Duration p50;
  Duration p99;
  Duration max;
};

DurationSummary summarise(std::vector<Duration> durations);

}  // namespace spillway::base
