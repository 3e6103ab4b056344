// SPDX-License-Identifier: Apache-2.0
//
// A thread that is started while this lives takes no signals: the application's handlers run in the
// application's threads. One thread.
#pragma once

#include <signal.h>

namespace spillway::runtime {

class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace spillway::runtime
