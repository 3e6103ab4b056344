// SPDX-License-Identifier: Apache-2.0
//
// What all writers of Chrome traces need: text as JSON, and lanes, because bars in one row of such
// a trace must not overlap. Plain values; one thread each.
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

// A bar goes into the lowest lane that is free when it begins.
class TraceLanes {
 public:
  // Bars come in the order of their starts.
  std::size_t place(Instant start, Instant end);

 private:
  template <typename T>
  using LeastFirst = std::priority_queue<T, std::vector<T>, std::greater<>>;

  LeastFirst<std::pair<Instant, std::size_t>> taken_;  // until when, and the lane
  LeastFirst<std::size_t> free_;
  std::size_t lanes_ = 0;
};

}  // namespace spillway::base
