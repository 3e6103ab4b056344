// SPDX-License-Identifier: Apache-2.0
//
// The speed of a piece of work, taken from the shortest of several runs, because noise only slows a
// run down. Header-only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/clock.h"

namespace spillway::bench {

// Keeps the compiler from removing work whose result nobody reads.
inline void keep(const void* data) {
  asm volatile("" : : "r"(data) : "memory");
}

// Returns bytes per nanosecond. `prepare` is not timed.
inline double best_rate(std::size_t bytes, int repetitions, const std::function<void()>& prepare,
                        const std::function<void()>& work) {
  const base::MonotonicClock clock;
  std::int64_t best = INT64_MAX;
  for (int i = 0; i < repetitions; ++i) {
    prepare();
    const base::Instant start = clock.now();
    work();
    best = std::min(best, (clock.now() - start).count());
  }
  return static_cast<double>(bytes) / static_cast<double>(std::max<std::int64_t>(best, 1));
}

inline const std::function<void()> kNoPreparation = [] {};

}  // namespace spillway::bench
