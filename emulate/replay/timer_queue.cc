// SPDX-License-Identifier: Apache-2.0
#include "emulate/replay/timer_queue.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>

#include "base/clock.h"

namespace spillway::emulate {

std::optional<TimerQueue::Timer> TimerQueue::take_due(base::Instant now) {
  if (timers_.empty() || timers_.top().due > now) {
    return std::nullopt;
  }
  const Timer timer = timers_.top();
  timers_.pop();
  return timer;
}

void TimerQueue::wait(base::Instant latest) {
  const base::Instant until = timers_.empty() ? latest : std::min(latest, timers_.top().due);
  // The base clock and steady_clock are both CLOCK_MONOTONIC.
  const std::chrono::steady_clock::time_point deadline{
      std::chrono::nanoseconds(until.since_zero().count())};
  std::unique_lock lock(mutex_);
  told_.wait_until(lock, deadline, [this] { return is_told_; });
  is_told_ = false;
}

void TimerQueue::notify() {
  {
    const std::lock_guard lock(mutex_);
    is_told_ = true;
  }
  told_.notify_one();
}

bool TimerQueue::make_precise() {
  return ::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL) == 0;
}

std::vector<base::Duration> measure_lateness(std::size_t pending, std::size_t waits,
                                             base::Duration apart) {
  const base::MonotonicClock clock;
  TimerQueue queue;
  TimerQueue::make_precise();
  const base::Instant far = clock.now() + base::seconds(3600);
  for (std::size_t i = 0; i < pending; ++i) {
    queue.add(far + base::microseconds(static_cast<std::int64_t>(i)), i);
  }
  std::vector<base::Duration> late;
  for (std::size_t i = 0; i < waits; ++i) {
    const base::Instant due = clock.now() + apart;
    queue.add(due, pending + i);
    while (!queue.take_due(clock.now())) {
      queue.wait(far);
    }
    late.push_back(clock.now() - due);
  }
  return late;
}

}  // namespace spillway::emulate
