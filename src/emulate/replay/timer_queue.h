// SPDX-License-Identifier: Apache-2.0
//
// Waiting until something is due or somebody else has something to say, as precisely as the kernel
// lets us and without a busy loop.
//
// A queue holds what is due when, any number of things; the earliest is found in constant time and
// taken out in the logarithm of their number, so how late a thing is does not depend on how many
// wait. wait() sleeps on the monotonic clock until the earliest is due, or until another thread
// calls notify(). A thread's timers are by default up to 50 us late on purpose (timer slack):
// make_precise() takes that away for the calling thread.
//
// One thread adds, takes and waits; notify() is for any thread.
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
  // The earliest, if it is due; else nothing.
  std::optional<Timer> take_due(base::Instant now);
  // Until the earliest is due, `latest` has come or notify() was called since the last wait.
  void wait(base::Instant latest);
  void notify();

  // Of the calling thread; false where the kernel does not let it.
  static bool make_precise();

 private:
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::mutex mutex_;
  std::condition_variable told_;
  bool is_told_ = false;
};

// How late `waits` things are, one after another, each `apart` behind the last, while `pending`
// others wait for something far away.
std::vector<base::Duration> measure_lateness(std::size_t pending, std::size_t waits,
                                             base::Duration apart);

}  // namespace spillway::emulate
