// SPDX-License-Identifier: Apache-2.0
//
// A parameter server's service: its totals so far (ServerTotals, a plain value) and how it ended.
//
// begin() comes before all else. Any thread: the communicator's loop adds, the owner reads and
// waits.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "base/status.h"
#include "collective/report.h"

namespace spillway::runtime {

struct ServerTotals {
  struct Worker {
    std::uint64_t late = 0;  // operations that completed without all of its part
    std::uint64_t missing_packets = 0;
    std::uint64_t trimmed_packets = 0;
  };

  void add(const collective::OperationReport& report) {
    ++operations;
    tensor_bytes += report.operation.bytes();
    wire_bytes_sent += report.wire_bytes_sent;
    for (std::size_t rank = 0; rank < workers.size(); ++rank) {
      const collective::PeerDelivery& from = report.peers[rank];
      workers[rank].late += from.late ? 1 : 0;
      workers[rank].missing_packets += from.missing;
      workers[rank].trimmed_packets += from.trimmed;
    }
  }

  std::uint64_t operations = 0;
  std::uint64_t tensor_bytes = 0;     // of whole tensors, summed over operations
  std::uint64_t wire_bytes_sent = 0;  // UDP payload
  std::vector<Worker> workers;        // by rank
};

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

  // How the service ended; nullopt if it still runs after `limit`.
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
