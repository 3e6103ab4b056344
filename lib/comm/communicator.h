// SPDX-License-Identifier: Apache-2.0
//
// A rank's membership in a group: the engine over the transport on real sockets, one thread that
// moves packets, and a few compute threads. Any thread may submit operations. Many may be in flight
// at once, and they progress without the caller.
//
//   auto communicator = Communicator::create(config);           // meets the other ranks
//   auto request = communicator->submit(operation);             // checks it, and returns at once
//   request->wait();
//
// If a rank dies, hangs, leaves early or calls a different operation, every operation here fails in
// less than two seconds and names the rank. The communicator is unusable afterwards.
//
// Threads: any thread may call the public functions. A child of fork() has neither the threads nor
// the membership, and its calls are refused. The destructor ends pending operations with an error,
// here and (by notice) at the other ranks. A finished communicator stays for a moment to answer
// peers that are not done.
//
// A job may have parameter servers. The application's ranks are then its workers: rank() and
// world() count only them, and all-reduces go through the servers. A server's process has a
// communicator too. It takes no operations: it serves the workers until all have left
// (wait_served).
//
// Limits: EngineLimits and EndpointLimits.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collective/engine.h"
#include "collective/report.h"
#include "comm/rendezvous/rendezvous.h"
#include "launch/launch.h"
#include "launch/secret.h"
#include "observe/execution_trace.h"
#include "observe/metrics.h"
#include "wire/key.h"

namespace spillway::comm {

// ------------------------------------------------------------------ what callers get

// A pending operation. Any thread may poll it (is_done), wait for it, or learn of its end by a
// callback. The communicator shares it until the operation ends, the caller as long as it wants.
class Request {
 public:
  // Called once, on the communicator's thread; must not block.
  using Callback = std::function<void(const base::Status& status)>;

  // `watcher` may be null.
  explicit Request(Callback callback = {}, std::shared_ptr<observe::RequestWatcher> watcher = {})
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
  // The operation's report, which never changes. Valid once the operation has ended, and as long as
  // the request.
  const collective::OperationReport& report() const {
    const std::lock_guard lock(mutex_);
    return *report_;
  }

  void finish(const base::Status& status,
              std::shared_ptr<const collective::OperationReport> report) {
    if (watcher_) {
      watcher_->on_end(base::MonotonicClock().now());
    }
    {
      const std::lock_guard lock(mutex_);
      status_ = status;
      report_ = std::move(report);
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
  std::shared_ptr<observe::RequestWatcher> watcher_;
  mutable std::mutex mutex_;
  mutable std::condition_variable ended_;
  std::optional<base::Status> status_;
  std::shared_ptr<const collective::OperationReport> report_;
};

// A parameter server's totals so far. A plain value.
struct ServerTotals {
  void add(const collective::OperationReport& report) {
    ++operations;
    tensor_bytes += report.operation.bytes();
    wire_bytes_sent += report.wire_bytes_sent;
    for (std::size_t rank = 0; rank < workers.size(); ++rank) {
      workers[rank].add(report.peers[rank]);
    }
  }

  std::uint64_t operations = 0;
  std::uint64_t tensor_bytes = 0;             // of whole tensors, summed over operations
  std::uint64_t wire_bytes_sent = 0;          // UDP payload
  std::vector<observe::PeerMetrics> workers;  // by rank
};

// ------------------------------------------------------------------ the communicator

struct CommunicatorConfig {
  // The identity of this rank. Without an id, the environment decides (launch.h).
  std::optional<UniqueId> id;
  RankOfWorld member;
  // Number of parameter servers. Unset: SPILLWAY_SERVERS, or none if there is an id.
  std::optional<std::uint16_t> servers;
  // Set if this process is a parameter server, not a rank.
  std::optional<launch::ServerPosition> serves;
  // Set only for a Slot: true if all ranks of its communicator run on this host. `id` and `member`
  // are then unused.
  std::optional<bool> slot_on_one_machine;

  std::string name = "world";  // in logs and metrics
  // Unset options come from SPILLWAY_LINK_RATE and similar variables, then from the machine.
  std::optional<base::BitRate> link_rate;  // of this host's link
  std::optional<unsigned> mtu;             // of the interface
  std::optional<unsigned> trim_bytes;      // size of a trimmed frame; 0: no trimming
  std::optional<unsigned> threads;         // compute threads
  std::optional<double> trimmed_target;    // over-send: share of packets to be trimmed
  launch::Secret secret;                   // of the job; empty: as secret.h says
  // How long to wait for the other ranks. Unset: as launch/launch.h says.
  std::optional<base::Duration> rendezvous_patience;
  std::optional<base::Duration> peer_timeout;
  base::Duration operation_timeout = base::seconds(300);
};

// The start of an elastic job. All ranks of a communicator derive the same values.
struct JobRoots {
  wire::RunKey key{};  // known only to these ranks
  bool on_one_machine = false;
};

class Communicator {
  class Impl;

 public:
  static base::Result<std::unique_ptr<Communicator>> create(const CommunicatorConfig& config);
  ~Communicator();

  // Creation in two steps, for ranks that do not meet at a rendezvous (elastic/job.h). open() binds
  // the sockets, so that peers can be told the address. take() makes the communicator once all
  // ranks are known. One thread.
  class Slot {
   public:
    static base::Result<std::unique_ptr<Slot>> open(const CommunicatorConfig& config);
    ~Slot();

    // This rank's card, which all other ranks need.
    const Blob& handle() const { return handle_; }
    const net::SocketAddress& address() const;
    // Makes the communicator as rank `rank`; handles[rank] must be this place's. All ranks must
    // pass the same handles and a key known to no one else. Waits for no ranks except those of this
    // machine. The place is used up.
    base::Result<std::unique_ptr<Communicator>> take(std::uint16_t rank,
                                                     std::span<const Blob> handles,
                                                     const wire::RunKey& key);

   private:
    explicit Slot(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
    Blob handle_;
  };

  std::uint16_t rank() const;
  std::uint16_t world() const;  // ranks of the application, without servers

  // The only place where the operation is checked. `on_done`: see Request.
  base::Result<std::shared_ptr<Request>> submit(const collective::Operation& operation,
                                                Request::Callback on_done = {});

  // Ends all operations here and, by notice, at the other ranks.
  base::Status abort(const std::string& why);
  // The error that broke the communicator; ok if it is usable.
  base::Status health() const;
  base::Result<JobRoots> job_roots() const;

  // For a parameter server: how the service ended (ok once all workers have left), or nullopt if it
  // still runs after `limit`.
  std::optional<base::Status> wait_served(std::chrono::milliseconds limit) const;
  ServerTotals server_totals() const;

 private:
  explicit Communicator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway::comm
