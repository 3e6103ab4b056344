// SPDX-License-Identifier: Apache-2.0
//
// Microsecond timestamps as packets carry them: the sender's clock modulo 2^32. Only differences
// below half the range (35 minutes) mean anything.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace spillway::transport {

constexpr std::uint32_t stamp_us(base::Instant time) {
  return static_cast<std::uint32_t>(time.since_zero().count() / 1000);
}

// From a timestamp of this clock until now; never negative.
constexpr base::Duration since_stamp(base::Instant now, std::uint32_t stamp) {
  const auto elapsed = static_cast<std::int32_t>(stamp_us(now) - stamp);
  return base::microseconds(elapsed > 0 ? elapsed : 0);
}

constexpr bool is_before(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::int32_t>(a - b) < 0;
}

}  // namespace spillway::transport
