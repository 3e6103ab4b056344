// SPDX-License-Identifier: Apache-2.0
//
// How long an answer takes: timestamps that packets carry there and back, the smoothed round trip
// and its variation (RFC 6298's averages), and the waits derived from them.
//
// A timestamp is its sender's clock in microseconds, of which packets carry the low 24 bits. It is
// compared only with that clock, as a round trip, which takes far less than half the range (8 s).
// Pure; one thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/units.h"
#include "wire/packet.h"

namespace spillway::transport {

constexpr std::uint32_t stamp_us(base::Instant time) {
  return static_cast<std::uint32_t>(time.since_zero().count() / 1000);
}

// Half the range of timestamps in packets.
inline constexpr std::int32_t kStampReach = 1 << (SPILLWAY_COUNTER_BITS - 1);

// From one timestamp to another, whose low bits may be all that is known; within the reach.
constexpr std::int32_t between_stamps(std::uint32_t earlier, std::uint32_t later) {
  constexpr unsigned kUnused = 32 - SPILLWAY_COUNTER_BITS;
  return static_cast<std::int32_t>((later - earlier) << kUnused) >> kUnused;
}

// From a timestamp of this clock until now; never negative.
constexpr base::Duration since_stamp(base::Instant now, std::uint32_t stamp) {
  return base::microseconds(std::max(between_stamps(stamp, stamp_us(now)), 0));
}

class RoundTrip {
 public:
  void add(base::Duration sample) {
    if (smoothed_ == base::Duration()) {
      smoothed_ = least_ = sample;
      variation_ = sample / 2;
      return;
    }
    const base::Duration error = sample > smoothed_ ? sample - smoothed_ : smoothed_ - sample;
    variation_ += (error - variation_) / 4;
    smoothed_ += (sample - smoothed_) / 8;
    least_ = std::min(least_ + kLeastForgets, sample);
  }

  bool is_known() const { return smoothed_ > base::Duration(); }
  base::Duration usual() const { return smoothed_; }
  // Seen lately; zero if nothing is known.
  base::Duration least() const { return least_; }
  // After this long, an answer that has not come is not expected to come.
  base::Duration timeout() const { return smoothed_ + variation_ * 4; }

 private:
  // Per sample, in case routes change.
  static constexpr base::Duration kLeastForgets = base::nanoseconds(100);

  base::Duration smoothed_;
  base::Duration variation_;
  base::Duration least_;
};

}  // namespace spillway::transport
