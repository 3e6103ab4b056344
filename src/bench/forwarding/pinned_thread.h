// SPDX-License-Identifier: Apache-2.0
//
// For as long as it lives, the calling thread stays on one processor and runs before ordinary
// threads, where that is permitted: what it measures is then its own. Throws CommandError where
// there is no such processor. Made and destroyed by one thread.
#pragma once

#include <sched.h>

#include "fabric/urgent_thread.h"

namespace spillway::bench {

// The calling thread's; false where that is not possible.
bool stay_on_processor(unsigned cpu);

// A pause between two measurements: the kernel stops urgent threads that never sleep for a while,
// and it should not do so in the middle of one.
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
