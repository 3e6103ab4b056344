// SPDX-License-Identifier: Apache-2.0
//
// The source of time. The core never asks the operating system; it is given a Clock or, better, an
// Instant. Real programs use a MonotonicClock, tests and the simulator a ManualClock. Times that
// machines must agree on use the time of day, which is only as exact as their clocks.
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

// Time since 1970 by the host's time of day, which hosts can compare. It can be set, so it may go
// back. Any thread.
Duration time_of_day();
// The offset from a monotonic Instant's since_zero() to the time of day. It changes when the time
// of day is set: read it once for instants whose distances must be kept. Any thread;
// async-signal-safe.
Duration unix_time_offset();

// A clock that stands still until it is advanced, and never goes back. One thread.
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
