// SPDX-License-Identifier: Apache-2.0
//
// From the monotonic clock, on which Instants are, to the time of day, on which machines agree as
// well as their clocks do. Safe in signal handlers and in any thread.
#pragma once

#include "base/units.h"

namespace spillway::runtime {

// What to add to an Instant's since_zero() for nanoseconds since 1970. It changes when the time of
// day is set: take it once for instants that must keep their distances.
base::Duration unix_time_offset();

}  // namespace spillway::runtime
