// SPDX-License-Identifier: Apache-2.0
//
// A parameter server's time of service: what it has done so far, and how it ended.
//
// begin() comes before all else. Any thread; the communicator's loop counts, its owner looks and
// waits.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>

#include "base/status.h"
#include "runtime/server_totals.h"

namespace spillway::runtime {

class Service {
 public:
  void begin(std::uint16_t workers) { totals_.workers.resize(workers); }

  void add(const collective::OperationReport& report) {
    const std::lock_guard lock(mutex_);
    totals_.add(report);
  }

  // The first end counts.
  void end(const base::Status& status) {
    const std::lock_guard lock(mutex_);
    if (!ended_) {
      ended_ = status;
      has_ended_.notify_all();
    }
  }

  // How it ended; nothing while it goes on after `limit`.
  std::optional<base::Status> wait(std::chrono::milliseconds limit) const {
    std::unique_lock lock(mutex_);
    has_ended_.wait_for(lock, limit, [this] { return ended_.has_value(); });
    return ended_;
  }

  ServerTotals totals() const {
    const std::lock_guard lock(mutex_);
    return totals_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable has_ended_;
  ServerTotals totals_;
  std::optional<base::Status> ended_;
};

}  // namespace spillway::runtime
