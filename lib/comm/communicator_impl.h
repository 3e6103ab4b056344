// SPDX-License-Identifier: Apache-2.0
//
// The implementation of Communicator (communicator.h): its state, and which thread owns each part.
//
// The application's threads check and submit operations; the driver's loop runs the engine and
// finishes the requests; the compute threads hand their results back to the loop. Only what
// `mutex_` guards, and Service, is used by several threads.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "comm/communicator.h"
#include "comm/compute_threads.h"
#include "comm/local_memory.h"
#include "comm/preparation.h"
#include "net/transport_driver.h"
#include "observe/execution_trace.h"
#include "observe/operation_observer.h"
#include "wire/key.h"

namespace spillway::comm {

// A parameter server's service: its totals so far and how it ended. begin() comes before all else.
// Any thread: the communicator's loop adds, the owner reads and waits.
class Service {
 public:
  void begin(std::uint16_t workers) { totals_.workers = observe::peer_metrics(workers); }

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

class Communicator::Impl final : private net::DriverListener, private collective::EngineListener {
 public:
  Impl(Preparation prepared, const CommunicatorConfig& config)
      : prepared_(std::move(prepared)), config_(config), process_(::getpid()) {
    config_.secret.wipe();
  }
  ~Impl();

  // open_sockets(), then meets the other ranks and begins.
  base::Status open();
  base::Status open_sockets();
  Blob card() const { return to_blob(own_card(prepared_, driver_->local(), memory_card())); }
  // Begins as rank `rank` of these ranks.
  base::Status begin_as(std::uint16_t rank, const GroupInfo& info);
  std::uint16_t rank() const { return prepared_.group.rank; }
  std::uint16_t world() const { return prepared_.group.workers(); }
  base::Result<std::shared_ptr<Request>> submit(const collective::Operation& operation,
                                                Request::Callback on_done);
  base::Status abort(const std::string& why);
  base::Status health() const;
  const Service& service() const { return service_; }
  const wire::RunKey& run_key() const { return run_key_; }
  const net::SocketAddress& address() const { return driver_->local(); }
  bool is_on_one_machine() const { return prepared_.launch.on_one_machine(); }

 private:
  base::Status begin(const GroupInfo& info);
  MemoryCard memory_card() const { return offer_ ? offer_->card() : MemoryCard{}; }
  base::Status check_process() const;
  void open_trace();

  // ---- the loop's thread: events of the driver and the engine
  void on_event(const transport::Event& event, transport::Endpoint& endpoint,
                base::Instant now) override;
  base::Instant next_timeout() const override {
    return std::min(engine_->next_timeout(), observer_->waits().next_look());
  }
  void on_timeout(transport::Endpoint& endpoint, base::Instant now) override;
  bool leaves_processors() const override { return !engine_->is_coding(); }
  void on_broken(const base::Status& cause, transport::Endpoint& endpoint,
                 base::Instant now) override;
  void on_stream_used(std::uint16_t peer) override;
  void on_complete(std::uint64_t token, const base::Status& ended,
                   const collective::OperationReport& report) override;
  void on_streams_wanted() override { driver_->open_streams(); }
  base::Status explained(const base::Status& status) const;

  void start(const collective::Operation& operation, std::uint64_t token,
             transport::Endpoint& endpoint, base::Instant now);
  void calculate(transport::Endpoint& endpoint, base::Instant now);
  void start_serving();
  void on_served(const base::Status& status, const collective::OperationReport& report);
  void check_service_end();
  void on_calculated(collective::ComputeJob& job, const base::Status& status);
  void take_result(collective::ComputeJob& job, const base::Status& status,
                   transport::Endpoint& endpoint, base::Instant now);
  struct FailedRequest {
    std::shared_ptr<Request> request;
    base::Status status;
    std::shared_ptr<const collective::OperationReport> report;
  };
  void finish_later(FailedRequest failed);
  void finish_orphans();
  void finish_failed();
  // ---- the end
  void send_goodbye();
  void linger();
  struct Activity {
    std::uint64_t datagrams = 0;  // received so far
    bool is_idle = false;
  };
  Activity activity();

  Preparation prepared_;
  CommunicatorConfig config_;
  pid_t process_;
  std::unique_ptr<observe::OperationObserver> observer_;
  std::shared_ptr<observe::ExecutionTrace> trace_;  // null: nothing is recorded
  std::string trace_group_;
  std::unique_ptr<net::TransportDriver> driver_;
  std::optional<MemoryOffer> offer_;           // until begin() takes it
  std::vector<net::SocketAddress> addresses_;  // send addresses, by rank
  packetize::PacketLimits packet_limits_;      // common to all ranks
  wire::RunKey run_key_;
  std::unique_ptr<ComputeThreads> pool_;
  std::unique_ptr<LocalMemory> memory_;
  std::unique_ptr<collective::Engine> engine_;

  // Used only by the loop's thread.
  std::uint64_t next_token_ = 1;
  base::Instant memory_due_;                       // when to record memory use again
  bool has_worked_ = false;                        // an operation has succeeded
  bool has_fallen_back_ = false;                   // to TCP, for at least one peer
  std::optional<launch::SilentPeer> silent_peer_;  // the peer whose silence broke the communicator
  std::unordered_map<std::uint64_t, std::shared_ptr<Request>> requests_;
  std::vector<FailedRequest> failed_;  // callers not yet told
  // For requests that the engine never reported; allocated while there is memory.
  const std::shared_ptr<const collective::OperationReport> empty_report_ =
      std::make_shared<const collective::OperationReport>();

  mutable std::mutex mutex_;
  base::Status failure_;
  Service service_;  // used only by parameter servers
};

}  // namespace spillway::comm
