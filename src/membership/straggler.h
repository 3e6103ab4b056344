// SPDX-License-Identifier: Apache-2.0
//
// Ranks that are only slow. All ranks of a step wait for the slowest, so the time of a step tells
// nothing; what tells is each rank's own work: what it did between two operations of the group.
//
// A rank's typical work is the median of its last kWorkSteps steps, so one slow step is nothing. A
// straggler is a rank whose typical work is more than `factor` times the median of all ranks'.
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
// Below this, ranks differ by whatever machines do.
inline constexpr base::Duration kLeastStragglerWork = base::milliseconds(1);

// One rank's own work. One thread.
class WorkWindow {
 public:
  void add(base::Duration work) { work_[count_++ % kWorkSteps] = work; }
  void clear() { count_ = 0; }
  // Nothing before kWorkSteps steps.
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

// `work`: typical work by rank, of those that are known. Nobody, unless more than half of `ranks`
// and at least three are: with two, nobody can say which of them is the slow one.
std::vector<Straggler> find_stragglers(const std::map<std::uint32_t, base::Duration>& work,
                                       std::size_t ranks, double factor);

}  // namespace spillway::membership
