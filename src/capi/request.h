// SPDX-License-Identifier: Apache-2.0
//
// What spillway_request points to: an operation, and what the caller was told of it. Shares the
// operation with its communicator, so it outlives that if it must.
//
// Threads: any, as the header promises; freeing is the caller's to serialise.
#pragma once

#include <spillway/spillway.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "runtime/request.h"

namespace spillway::capi {

// The caller's callback, and whether it has returned: only then is its context free.
class CallbackCall {
 public:
  CallbackCall(spillway_callback callback, void* context)
      : callback_(callback), context_(context) {}

  void run(const base::Status& status);
  void wait_until_returned() const { has_returned_.wait(false); }

 private:
  spillway_callback callback_;
  void* context_;
  std::atomic<bool> has_returned_{false};
};

}  // namespace spillway::capi

struct spillway_request {
  // Nothing if it has not ended by then.
  std::optional<spillway::base::Status> wait(std::optional<std::chrono::nanoseconds> limit) const;

  std::shared_ptr<spillway::runtime::Request> request{};
  std::shared_ptr<spillway::capi::CallbackCall> callback{};  // if there is one
  pid_t process = 0;                                         // whose threads finish it

  mutable std::mutex mutex{};
  mutable std::string message{};  // once asked for; does not change afterwards
};
