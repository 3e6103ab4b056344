// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <chrono>

namespace spillway::base {

Instant MonotonicClock::now() const {
  const auto since_zero = std::chrono::steady_clock::now().time_since_epoch();
  return Instant(
      nanoseconds(std::chrono::duration_cast<std::chrono::nanoseconds>(since_zero).count()));
}

}  // namespace spillway::base
