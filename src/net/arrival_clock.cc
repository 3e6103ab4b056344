// SPDX-License-Identifier: Apache-2.0
#include "net/arrival_clock.h"

#include <algorithm>

#include "base/clock.h"
#include "net/time_spec.h"

namespace spillway::net {
namespace {

constexpr base::Duration kMeasuredAgainAfter = base::milliseconds(100);

}  // namespace

void ArrivalClock::measure(base::Instant now) {
  timespec time_of_day{};
  ::clock_gettime(CLOCK_REALTIME, &time_of_day);
  ahead_ = duration_of(time_of_day) - base::MonotonicClock().now().since_zero();
  measured_ = now;
  is_measured_ = true;
}

base::Instant ArrivalClock::instant_of(const timespec& stamped, base::Instant now) {
  if (!is_measured_ || now - measured_ >= kMeasuredAgainAfter) {
    measure(now);
  }
  return std::min(base::Instant(duration_of(stamped) - ahead_), now);
}

}  // namespace spillway::net
