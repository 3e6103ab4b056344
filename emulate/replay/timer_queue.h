// SPDX-License-Identifier: Apache-2.0
//
// Waits until something is due or another thread calls notify(), as precisely as the kernel allows
// and without a busy loop.
//
// A queue holds any number of timers. Finding the earliest takes constant time, removing it takes
// logarithmic time, so lateness does not depend on how many wait. wait() sleeps on the monotonic
// clock. By default the kernel delays a thread's timers by up to 50 us (timer slack);
// make_precise() removes that for the calling thread.
//
// One thread adds, takes and waits; any thread may call notify().
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <queue>
#include <vector>

#include "base/units.h"

namespace spillway::emulate {

class TimerQueue {
 public:
  struct Timer {
    base::Instant due;
    std::uint64_t what = 0;
    bool operator>(const Timer& other) const {
      return due != other.due ? due > other.due : what > other.what;
    }
  };

  void add(base::Instant due, std::uint64_t what) { timers_.push({due, what}); }
  std::size_t pending() const { return timers_.size(); }
  // Returns the earliest timer if it is due.
  std::optional<Timer> take_due(base::Instant now);
  // Waits until the earliest is due, `latest` is reached, or notify() was called since the previous
  // wait.
  void wait(base::Instant latest);
  void notify();

  // For the calling thread; false if the kernel refuses.
  static bool make_precise();

 private:
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::mutex mutex_;
  std::condition_variable told_;
  bool is_told_ = false;
};

// Measures how late `waits` timers fire, one after another, `apart` from each other, while
// `pending` others wait for something far away.
std::vector<base::Duration> measure_lateness(std::size_t pending, std::size_t waits,
                                             base::Duration apart);

}  // namespace spillway::emulate
