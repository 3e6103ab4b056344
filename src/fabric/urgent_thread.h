// SPDX-License-Identifier: Apache-2.0
//
// For as long as it lives, the calling thread runs before ordinary ones and wakes when it asked to,
// not some microseconds later; where the system does not permit it, as it did before. What the
// thread starts meanwhile is ordinary. Made and destroyed by the same thread.
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
