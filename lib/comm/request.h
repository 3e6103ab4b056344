// SPDX-License-Identifier: Apache-2.0
//
// A pending operation. Any thread may poll it (is_done), wait for it, or learn of its end by a
// callback. The communicator shares it until the operation ends, the caller until it lets go.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "base/clock.h"
#include "base/status.h"
#include "collective/report.h"
#include "observe/request_watcher.h"

namespace spillway::runtime {

class Request {
 public:
  // Called once, on the communicator's thread; must not block.
  using Callback = std::function<void(const base::Status& status)>;

  // `watcher` may be null.
  explicit Request(Callback callback = {}, std::shared_ptr<RequestWatcher> watcher = {})
      : callback_(std::move(callback)), watcher_(std::move(watcher)) {}

  bool is_done() const {
    const std::lock_guard lock(mutex_);
    return status_.has_value();
  }
  // How the operation ended; nullopt if it has not within `limit`. Waits forever without a limit.
  std::optional<base::Status> wait(std::optional<std::chrono::nanoseconds> limit) const {
    if (!watcher_) {
      return wait_unwatched(limit);
    }
    const base::Instant began = base::MonotonicClock().now();
    std::optional<base::Status> status = wait_unwatched(limit);
    watcher_->on_wait(began, base::MonotonicClock().now(), status.has_value());
    return status;
  }
  // Valid once the operation has ended.
  collective::OperationReport report() const {
    const std::lock_guard lock(mutex_);
    return report_;
  }

  void finish(const base::Status& status, const collective::OperationReport& report) {
    if (watcher_) {
      watcher_->on_end(base::MonotonicClock().now());
    }
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
  std::optional<base::Status> wait_unwatched(std::optional<std::chrono::nanoseconds> limit) const {
    std::unique_lock lock(mutex_);
    const auto done = [this] { return status_.has_value(); };
    if (limit) {
      ended_.wait_for(lock, *limit, done);
    } else {
      ended_.wait(lock, done);
    }
    return status_;
  }

  Callback callback_;
  std::shared_ptr<RequestWatcher> watcher_;
  mutable std::mutex mutex_;
  mutable std::condition_variable ended_;
  std::optional<base::Status> status_;
  collective::OperationReport report_;
};

}  // namespace spillway::runtime
