// SPDX-License-Identifier: Apache-2.0
//
// Whoever wants to know when a request is waited for and when it is over.
#pragma once

#include "base/units.h"

namespace spillway::runtime {

class RequestWatcher {
 public:
  virtual ~RequestWatcher() = default;
  // On the thread that waited; `is_over`: and not only its patience.
  virtual void on_wait(base::Instant began, base::Instant ended, bool is_over) = 0;
  // Once, on the communicator's thread, before anybody who waits comes back.
  virtual void on_end(base::Instant at) = 0;
};

}  // namespace spillway::runtime
