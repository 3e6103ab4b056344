// SPDX-License-Identifier: Apache-2.0
//
// Defines spillway_request: an operation and its callback. It shares the operation with its
// communicator, so it may outlive the communicator.
//
// Any thread, as the header promises; the caller must serialise freeing with other calls.
#pragma once

#include <spillway/spillway.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "comm/request.h"

namespace spillway::capi {

// The caller's callback, and whether it has returned: its context is in use until then.
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
  // nullopt if the operation has not ended within `limit`.
  std::optional<spillway::base::Status> wait(std::optional<std::chrono::nanoseconds> limit) const;

  std::shared_ptr<spillway::runtime::Request> request{};
  std::shared_ptr<spillway::capi::CallbackCall> callback{};  // null if there is none
  pid_t process = 0;                                         // the process whose threads finish it

  mutable std::mutex mutex{};
  mutable std::string message{};  // set on the first request, then constant
};
