// SPDX-License-Identifier: Apache-2.0
#include "switch/fabric/urgent_thread.h"

#include <sys/prctl.h>

namespace spillway::fabric {

UrgentThread::UrgentThread()
    : policy_before_(::sched_getscheduler(0)), slack_before_(::prctl(PR_GET_TIMERSLACK)) {
  ::sched_getparam(0, &priority_before_);
  sched_param lowest_urgent{};
  lowest_urgent.sched_priority = 1;
  ::sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &lowest_urgent);
  ::prctl(PR_SET_TIMERSLACK, 1);
}

UrgentThread::~UrgentThread() {
  if (policy_before_ >= 0) {
    ::sched_setscheduler(0, policy_before_, &priority_before_);
  }
  if (slack_before_ > 0) {
    ::prctl(PR_SET_TIMERSLACK, slack_before_);
  }
}

}  // namespace spillway::fabric
