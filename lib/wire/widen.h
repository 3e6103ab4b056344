// SPDX-License-Identifier: Apache-2.0
//
// Counters have 64 bits and never repeat a value; packets carry the low bits. A receiver knows
// roughly where a counter stands and takes the nearest value. It is right unless the counter moved
// by half the range of the low bits: two thousand million lost packets in a row. A wrong guess is
// detected, because the packet's check covers the whole counter.
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
