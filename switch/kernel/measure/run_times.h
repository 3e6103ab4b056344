// SPDX-License-Identifier: Apache-2.0
//
// Averages over many runs of a program. No state.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

namespace spillway::kernel {

// Mean of the middle half of the values.
inline double middle_mean(std::vector<double>& values) {
  std::ranges::sort(values);
  const auto quarter = static_cast<std::ptrdiff_t>(values.size() / 4);
  const auto first = values.begin() + quarter;
  const auto last = values.end() - quarter;
  return std::accumulate(first, last, 0.0) / static_cast<double>(last - first);
}

inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace spillway::kernel
