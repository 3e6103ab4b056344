// SPDX-License-Identifier: Apache-2.0
//
// What the kernel says beside a received message, for all kinds of sockets that ask for it: when it
// arrived, its DSCP and ECN, and how many messages the full queue lost before it. One per socket;
// one thread.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <cstring>

#include "base/units.h"
#include "net/arrival_clock.h"

namespace spillway::net {

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
  // Takes in one control message; what is none of the above changes nothing. `now` by
  // base::MonotonicClock, after the message was received.
  void read(const cmsghdr& control, base::Instant now, ArrivalNotes& notes);

  std::uint64_t overflowed() const { return overflowed_; }

 private:
  ArrivalClock clock_;
  std::uint32_t overflow_seen_ = 0;  // the kernel counts modulo 2^32
  std::uint64_t overflowed_ = 0;
};

}  // namespace spillway::net
