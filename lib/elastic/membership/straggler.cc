// SPDX-License-Identifier: Apache-2.0
#include "elastic/membership/straggler.h"

#include <algorithm>

namespace spillway::membership {
namespace {

// For an even count, returns the lower of the two middle values.
base::Duration median_work(std::vector<base::Duration> work) {
  const auto middle = work.begin() + static_cast<std::ptrdiff_t>((work.size() - 1) / 2);
  std::ranges::nth_element(work, middle);
  return *middle;
}

}  // namespace

std::optional<base::Duration> WorkWindow::typical() const {
  if (count_ < kWorkSteps) {
    return std::nullopt;
  }
  return median_work({work_.begin(), work_.end()});
}

std::vector<Straggler> find_stragglers(const std::map<std::uint32_t, base::Duration>& work,
                                       std::size_t ranks, double factor) {
  std::vector<Straggler> found;
  if (work.size() < 3 || 2 * work.size() <= ranks) {
    return found;
  }
  std::vector<base::Duration> all;
  for (const auto& [rank, typical] : work) {
    all.push_back(typical);
  }
  const auto median = static_cast<double>(std::max<std::int64_t>(median_work(all).count(), 1));
  for (const auto& [rank, typical] : work) {
    const double times = static_cast<double>(typical.count()) / median;
    if (typical >= kLeastStragglerWork && times > factor) {
      found.push_back({rank, times});
    }
  }
  return found;
}

}  // namespace spillway::membership
