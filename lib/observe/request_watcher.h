// SPDX-License-Identifier: Apache-2.0
//
// Is told when a caller waits for a request and when the request ends.
#pragma once

#include "base/units.h"

namespace spillway::runtime {

class RequestWatcher {
 public:
  virtual ~RequestWatcher() = default;
  // Called on the waiting thread. `is_over`: the operation ended, not only the wait.
  virtual void on_wait(base::Instant began, base::Instant ended, bool is_over) = 0;
  // Called once, on the communicator's thread, before any waiter returns.
  virtual void on_end(base::Instant at) = 0;
};

}  // namespace spillway::runtime
