// SPDX-License-Identifier: Apache-2.0
//
// Counters are of 64 bits and never come back to a value they had; packets carry the low bits. A
// receiver knows about where a counter stands and takes the value nearest to that. It is right as
// long as less than half the range of the low bits lies between: two thousand million packets lost
// in a row. A wrong guess is found out, for the whole counter is under the packet's check.
//
// Pure functions.
#pragma once

#include <concepts>
#include <cstdint>

namespace spillway::wire {

// The number nearest to `near` whose low bits are `low`.
template <std::unsigned_integral Low>
constexpr std::uint64_t widen(Low low, std::uint64_t near) {
  constexpr std::uint64_t kRange = std::uint64_t{1} << (8 * sizeof(Low));
  const std::uint64_t ahead = static_cast<Low>(low - static_cast<Low>(near));
  const bool is_behind = ahead >= kRange / 2 && near + ahead >= kRange;
  return near + ahead - (is_behind ? kRange : 0);
}

}  // namespace spillway::wire
