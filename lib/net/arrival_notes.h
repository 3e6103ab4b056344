// SPDX-License-Identifier: Apache-2.0
//
// What the kernel reports beside a received message, on any kind of socket that asks for it:
// arrival time, DSCP and ECN, and how many messages the full queue dropped before it. One
// ArrivalReader per socket; one thread.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <cstring>
#include <ctime>

#include "base/units.h"

namespace spillway::net {

// Converts the kernel's receive timestamps, which follow the time of day, into instants of the
// monotonic clock. The offset between the clocks is measured again regularly, so a step of the time
// of day does harm only briefly. No instant lies in the future.
class ArrivalClock {
 public:
  // `stamped` comes from SO_TIMESTAMPNS, `now` from base::MonotonicClock.
  base::Instant instant_of(const timespec& stamped, base::Instant now);

 private:
  void measure(base::Instant now);

  base::Duration ahead_;  // of the time of day over the monotonic clock
  base::Instant measured_;
  bool is_measured_ = false;
};

template <typename T>
T control_value(const cmsghdr& control) {
  T value{};
  std::memcpy(&value, CMSG_DATA(&control), sizeof(value));
  return value;
}

struct ArrivalNotes {
  std::uint8_t tos = 0;
  base::Instant at;
};

class ArrivalReader {
 public:
  // Reads one control message; ignores kinds not listed above. `now` is the time by
  // base::MonotonicClock after the message was received.
  void read(const cmsghdr& control, base::Instant now, ArrivalNotes& notes);

  std::uint64_t overflowed() const { return overflowed_; }

 private:
  ArrivalClock clock_;
  std::uint32_t overflow_seen_ = 0;  // the kernel counts modulo 2^32
  std::uint64_t overflowed_ = 0;
};

}  // namespace spillway::net
