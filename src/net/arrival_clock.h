// SPDX-License-Identifier: Apache-2.0
//
// Turns the kernel's receive timestamps, which follow the time of day, into instants of the
// monotonic clock. The difference of the two clocks is measured anew now and then, so a step of the
// time of day does harm for a moment only; and no instant lies in the future.
#pragma once

#include <ctime>

#include "base/units.h"

namespace spillway::net {

class ArrivalClock {
 public:
  // `stamped` as SO_TIMESTAMPNS tells it; `now` by base::MonotonicClock.
  base::Instant instant_of(const timespec& stamped, base::Instant now);

 private:
  void measure(base::Instant now);

  base::Duration ahead_;  // of the time of day over the monotonic clock
  base::Instant measured_;
  bool is_measured_ = false;
};

}  // namespace spillway::net
