// SPDX-License-Identifier: Apache-2.0
//
// Shared by all writers of Chrome traces: JSON text, and lanes, because bars in one row of a trace
// must not overlap. Plain values; one thread each.
#pragma once

#include <cstddef>
#include <functional>
#include <queue>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/units.h"

namespace spillway::base {

std::string json_quoted(std::string_view text);

// Puts a bar into the lowest lane that is free when the bar begins.
class TraceLanes {
 public:
  // Call this in the order of the bars' starts.
  std::size_t place(Instant start, Instant end);

 private:
  template <typename T>
  using LeastFirst = std::priority_queue<T, std::vector<T>, std::greater<>>;

  LeastFirst<std::pair<Instant, std::size_t>> taken_;  // when each lane becomes free, and the lane
  LeastFirst<std::size_t> free_;
  std::size_t lanes_ = 0;
};

}  // namespace spillway::base
