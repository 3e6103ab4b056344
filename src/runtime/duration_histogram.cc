// SPDX-License-Identifier: Apache-2.0
#include "runtime/duration_histogram.h"

#include <algorithm>
#include <numeric>

namespace spillway::runtime {

void DurationHistogram::add(base::Duration duration) {
  const auto* bucket = std::lower_bound(kBuckets.begin(), kBuckets.end(), duration);
  ++counts_[static_cast<std::size_t>(bucket - kBuckets.begin())];
  sum_ += duration;
}

std::uint64_t DurationHistogram::count_up_to(std::size_t bucket) const {
  return std::accumulate(counts_.begin(), counts_.begin() + bucket + 1, std::uint64_t{0});
}

std::uint64_t DurationHistogram::count() const {
  return count_up_to(kBuckets.size());
}

}  // namespace spillway::runtime
