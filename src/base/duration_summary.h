// SPDX-License-Identifier: Apache-2.0
//
// Many durations in a few figures: how many, mean, median, 99th percentile, longest. Percentiles
// are nearest-rank: the least of the durations that so many percent do not exceed, never a value
// between two of them. Of no durations all figures are zero.
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
