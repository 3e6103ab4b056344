// SPDX-License-Identifier: Apache-2.0
//
// Detects slow ranks. Every rank waits for the slowest, so the duration of a step tells nothing.
// Instead each rank measures its own work: the time it spends between two operations of the group.
//
// A rank's typical work is the median of its last kWorkSteps steps, so one slow step does not
// matter. A straggler is a rank whose typical work is more than `factor` times the median of all
// ranks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/units.h"

namespace spillway::membership {

inline constexpr std::size_t kWorkSteps = 8;
// Below this, differences between ranks are noise of the machines.
inline constexpr base::Duration kLeastStragglerWork = base::milliseconds(1);

// One rank's own work. One thread.
class WorkWindow {
 public:
  void add(base::Duration work) { work_[count_++ % kWorkSteps] = work; }
  void clear() { count_ = 0; }
  // Unset before kWorkSteps steps.
  std::optional<base::Duration> typical() const;

 private:
  std::array<base::Duration, kWorkSteps> work_{};
  std::size_t count_ = 0;
};

struct Straggler {
  std::uint32_t rank = 0;
  double times_median = 0;

  friend bool operator==(const Straggler&, const Straggler&) = default;
};

// `work`: typical work of the ranks for which it is known. Returns nothing unless these are at
// least three and more than half of `ranks`: of two, neither is known to be the slow one.
std::vector<Straggler> find_stragglers(const std::map<std::uint32_t, base::Duration>& work,
                                       std::size_t ranks, double factor);

}  // namespace spillway::membership
