// SPDX-License-Identifier: Apache-2.0
#include "runtime/unix_time.h"

#include <time.h>

#include "base/clock.h"

namespace spillway::runtime {

base::Duration unix_time_offset() {
  timespec time{};
  ::clock_gettime(CLOCK_REALTIME, &time);
  return base::seconds(time.tv_sec) + base::nanoseconds(time.tv_nsec) -
         base::MonotonicClock().now().since_zero();
}

}  // namespace spillway::runtime
