// SPDX-License-Identifier: Apache-2.0
//
// Durations as the kernel's calls take them, and back.
#pragma once

#include <algorithm>
#include <ctime>

#include "base/units.h"

namespace spillway::net {

// Below zero there is no time to wait: zero.
inline timespec timespec_of(base::Duration duration) {
  const std::int64_t count = std::max<std::int64_t>(duration.count(), 0);
  return {.tv_sec = static_cast<time_t>(count / 1'000'000'000),
          .tv_nsec = static_cast<long>(count % 1'000'000'000)};
}

inline base::Duration duration_of(const timespec& time) {
  return base::seconds(time.tv_sec) + base::nanoseconds(time.tv_nsec);
}

}  // namespace spillway::net
