// SPDX-License-Identifier: Apache-2.0
//
// While this object lives, the calling thread runs before ordinary threads and wakes up on time,
// not some microseconds later. If the system does not permit it, nothing changes. Threads started
// meanwhile are ordinary. Create and destroy it on the same thread.
#pragma once

#include <sched.h>

namespace spillway::fabric {

class UrgentThread {
 public:
  UrgentThread();
  ~UrgentThread();
  UrgentThread(const UrgentThread&) = delete;
  UrgentThread& operator=(const UrgentThread&) = delete;

 private:
  int policy_before_;
  sched_param priority_before_{};
  int slack_before_;
};

}  // namespace spillway::fabric
