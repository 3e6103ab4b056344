// SPDX-License-Identifier: Apache-2.0
//
// What many runs of a program took, as one number. No state.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

namespace spillway::kernel {

// Of the middle half.
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
