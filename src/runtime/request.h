// SPDX-License-Identifier: Apache-2.0
//
// An operation somebody waits for: asked (is_done), waited for, or heard of by a callback, from any
// thread. Shared by its communicator until the operation ends and by the caller until it lets go.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>

#include "base/status.h"
#include "collective/report.h"

namespace spillway::runtime {

class Request {
 public:
  // Called once, on the communicator's thread; must not block.
  using Callback = std::function<void(const base::Status& status)>;

  explicit Request(Callback callback = {}) : callback_(std::move(callback)) {}

  bool is_done() const {
    const std::lock_guard lock(mutex_);
    return status_.has_value();
  }
  // How it ended; nothing if it has not by then. No limit: as long as it takes.
  std::optional<base::Status> wait(std::optional<std::chrono::nanoseconds> limit) const {
    std::unique_lock lock(mutex_);
    const auto done = [this] { return status_.has_value(); };
    if (limit) {
      ended_.wait_for(lock, *limit, done);
    } else {
      ended_.wait(lock, done);
    }
    return status_;
  }
  // Of an operation that has ended.
  collective::OperationReport report() const {
    const std::lock_guard lock(mutex_);
    return report_;
  }

  void finish(const base::Status& status, const collective::OperationReport& report) {
    {
      const std::lock_guard lock(mutex_);
      status_ = status;
      report_ = report;
    }
    ended_.notify_all();
    if (callback_) {
      callback_(status);
    }
  }

 private:
  Callback callback_;
  mutable std::mutex mutex_;
  mutable std::condition_variable ended_;
  std::optional<base::Status> status_;
  collective::OperationReport report_;
};

}  // namespace spillway::runtime
