// SPDX-License-Identifier: Apache-2.0
//
// Time: clocks, a summary of many durations, and lanes for overlapping intervals.
//
// The core never asks the operating system for the time; it is given a Clock or, better, an
// Instant. Real programs use a MonotonicClock, tests and the simulator a ManualClock. Times that
// machines must agree on use the time of day, which is only as exact as their clocks.
//
// Except for the functions and the MonotonicClock, values belong to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

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

// Count, mean, median, 99th percentile and longest of many durations. Percentiles are nearest-rank,
// so each is one of the durations. Without durations all figures are zero.
struct DurationSummary {
  std::uint64_t count = 0;
  Duration mean;
  Duration p50;
  Duration p99;
  Duration max;
};

DurationSummary summarise(std::vector<Duration> durations);

// Rows for the bars of a Chrome trace, which must not overlap within a row. Puts a bar into the
// lowest lane that is free when the bar begins.
class TraceLanes {
 public:
  // Call this in the order of the bars' starts.
  std::size_t place(Instant start, Instant end);

 private:
  template <typename T>
  using LeastFirst = std::priority_queue<T, std::vector<T>, std::greater<>>;

  LeastFirst<std::pair<Instant, std::size_t>> taken_;  // when each lane becomes free, and the lane
  LeastFirst<std::size_t> free_;
  std::size_t lanes_ = 0;
};

}  // namespace spillway::base
