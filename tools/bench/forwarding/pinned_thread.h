// SPDX-License-Identifier: Apache-2.0
//
// While it lives, the calling thread stays on one CPU and, if permitted, runs before ordinary
// threads, so that its measurements are its own. Throws CommandError if there is no such CPU. Made
// and destroyed by one thread.
#pragma once

#include <sched.h>

#include "switch/fabric/urgent_thread.h"

namespace spillway::bench {

// Pins the calling thread to a CPU; false if that is not possible.
bool stay_on_processor(unsigned cpu);

// Pauses between two measurements. The kernel throttles urgent threads that never sleep, and should
// not do so during a measurement.
void rest();

class PinnedThread {
 public:
  explicit PinnedThread(unsigned cpu);
  ~PinnedThread();
  PinnedThread(const PinnedThread&) = delete;
  PinnedThread& operator=(const PinnedThread&) = delete;

 private:
  cpu_set_t before_;
  fabric::UrgentThread urgent_;
};

}  // namespace spillway::bench
