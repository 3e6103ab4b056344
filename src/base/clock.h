// SPDX-License-Identifier: Apache-2.0
//
// Where time comes from. The core never asks the operating system: it is handed a Clock, or better
// an Instant. Real programs hand in a MonotonicClock, tests and the simulator a ManualClock. What
// machines must agree on is put on the time of day, as well as their clocks do.
#pragma once

#include "base/check.h"
#include "base/units.h"

namespace spillway::base {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant now() const = 0;
};

// The machine's monotonic clock. Safe to read from any thread.
class MonotonicClock final : public Clock {
 public:
  Instant now() const override;
};

// How long ago 1970 began, by the machine's time of day: what hosts can compare. It may be set, so
// it may go back. Any thread.
Duration time_of_day();
// What to add to an Instant's since_zero() of the monotonic clock for the time of day. It changes
// when that is set: take it once for instants that must keep their distances. Any thread, and safe
// in a signal handler.
Duration unix_time_offset();

// A clock that stands still until told otherwise, and never goes back. One thread.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(Instant start = Instant()) : now_(start) {}

  Instant now() const override { return now_; }
  void advance(Duration by) {
    SPILLWAY_CHECK(by >= Duration());
    now_ = now_ + by;
  }

 private:
  Instant now_;
};

}  // namespace spillway::base
