// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <chrono>

namespace spillway::base {

Instant MonotonicClock::now() const {
  const auto since_zero = std::chrono::steady_clock::now().time_since_epoch();
  return Instant(
      nanoseconds(std::chrono::duration_cast<std::chrono::nanoseconds>(since_zero).count()));
}

Duration time_of_day() {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return nanoseconds(std::chrono::duration_cast<std::chrono::nanoseconds>(since_1970).count());
}

Duration unix_time_offset() {
  return time_of_day() - MonotonicClock().now().since_zero();
}

}  // namespace spillway::base
