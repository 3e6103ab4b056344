// SPDX-License-Identifier: Apache-2.0
//
// All operations of one communicator at one rank, over one endpoint: takes them, starts them, hands
// them what happens, and says when each is over. No I/O and no threads: a driver with sockets and a
// simulated host use it alike.
//
//   admit(), submit()            from the caller; a parameter server has none, it calls serve()
//   on_event()                   what the endpoint's poll_event() gave
//   on_computed()                a job the pool has run
//   on_timeout()                 when the clock passed next_timeout()
//
// Order: collective operations begin in the order of their submission, which is the same at all
// ranks; as many run at once as the endpoint has room for. Because what is running is a run of
// consecutive operations everywhere, ranks never wait for each other in a circle. Which of them
// gets on first is up to priorities, packet by packet. Point-to-point operations begin at once.
//
// Failure: a dead peer, a peer that says it failed or left too early, an operation that ranks do
// not agree on, or an abort ends every operation, those submitted later included, with one Status
// that names the rank; the other ranks are told. An engine that failed stays failed.
//
// With parameter servers a worker calls them before each collective operation, and a server opens
// those that go through it as their calls come (servers/call_delivery.h); it completes them to its
// listener like its own, with their sequence as the token.
//
// An operation may be complete for its caller while a late rank still has to be told of it; it then
// goes on in the background, and counts against the limits.
//
// Limits: EngineLimits. One thread, but for admit().
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collective/exact/plan_run.h"
#include "collective/exact/planner.h"
#include "collective/operation_run.h"
#include "collective/servers/call_delivery.h"
#include "collective/tolerant/pace.h"

namespace spillway::collective {

struct EngineLimits {
  std::size_t running = 256;      // operations at once
  std::size_t waiting = 4096;     // operations that have not begun
  std::size_t messages = 12'000;  // of running operations, each way: less than the endpoint's
  std::size_t scratch_kept = 256u << 20;
  std::size_t feedback_tensors = 65536;
};

struct EngineConfig {
  Group group;
  packetize::Job job;
  packetize::PacketLimits packet_limits;
  bool keyed = false;
  PeerMemory* memory = nullptr;  // of ranks on this machine, if it can be read; outlives the engine
  PlanOptions plan{};
  EngineLimits limits{};
  // An operation that has not ended by then fails; names the ranks it waits for.
  base::Duration operation_timeout = base::seconds(300);
  // Once an operation is this old, all peers are watched, not only those that owe something.
  base::Duration watch_after = base::milliseconds(100);
};

class EngineListener {
 public:
  virtual ~EngineListener() = default;
  // Once for every submitted operation. The caller's memory is free again.
  virtual void on_complete(std::uint64_t token, const base::Status& status,
                           const OperationReport& report) = 0;
};

class Engine {
 public:
  // Auth, pool and listener outlive the engine.
  static base::Result<std::unique_ptr<Engine>> make(const EngineConfig& config,
                                                    const wire::PacketAuth& auth, ComputePool& pool,
                                                    EngineListener& listener);

  // The door: whether this rank may call the operation. Whoever takes operations from a caller asks
  // once and submits only what is admitted. Any thread.
  base::Status admit(const Operation& operation) const;
  // `token` is the caller's own name for it. An error is one of limits, and changes nothing; a
  // failed engine takes operations and completes them with its failure.
  base::Status submit(const Operation& operation, std::uint64_t token,
                      transport::Endpoint& endpoint, base::Instant now);
  // At a parameter server, once: whatever the workers call from now on.
  base::Status serve(transport::Endpoint& endpoint, base::Instant now);

  void on_event(const transport::Event& event, transport::Endpoint& endpoint, base::Instant now);
  void on_computed(const ComputeJob& job, transport::Endpoint& endpoint, base::Instant now);
  void on_timeout(transport::Endpoint& endpoint, base::Instant now);
  base::Instant next_timeout() const;

  // Ends everything with `cause`; tells the other ranks whose fault it is.
  void fail(const base::Status& cause, std::uint16_t culprit, wire::FailureCause reason,
            transport::Endpoint& endpoint, base::Instant now);

  bool has_failed() const { return failure_.has_value(); }
  const std::optional<base::Status>& failure() const { return failure_; }
  // At a parameter server: all workers have left and nothing is left to do.
  bool is_service_over() const { return intake_->has_everybody_left() && is_idle(); }
  std::size_t running() const { return running_.size(); }
  std::size_t waiting() const { return waiting_.size(); }
  // Nobody waits for an operation of this rank.
  bool is_done() const {
    return waiting_.empty() && leaving_.empty() &&
           std::all_of(running_.begin(), running_.end(),
                       [](const auto& entry) { return entry.second.is_complete; });
  }
  // No operation, job or message is left.
  bool is_idle() const {
    return running_.empty() && waiting_.empty() && leaving_.empty() &&
           (!outbox_ || outbox_->is_empty());
  }
  std::size_t memory_bytes() const;

 private:
  struct Active {
    std::unique_ptr<OperationRun> run;
    std::uint64_t token = 0;
    bool is_complete = false;  // its caller was told; it still owes other ranks something
  };
  struct Waiting {
    Operation operation;
    std::uint64_t token = 0;
    std::uint32_t sequence = 0;
    base::Instant queued;
  };
  // Sequence for collective operations; peer, direction and number for point-to-point ones.
  using Key = std::uint64_t;

  Engine(const EngineConfig& config, const ByteLayout& layout, const wire::PacketAuth& auth,
         ComputePool& pool, EngineListener& listener);

  static Key point_to_point_key(std::uint16_t peer, bool sends, std::uint32_t number);
  static Key key_of(const wire::MessageId& id, std::uint16_t peer, bool sends);
  static bool is_point_to_point_key(Key key) { return key >> 63 != 0; }

  base::Status validate_here(const Operation& operation) const;
  void enqueue(const Waiting& waiting, transport::Endpoint& endpoint, base::Instant now);
  void start_waiting(transport::Endpoint& endpoint, base::Instant now);
  void start(const Waiting& waiting, Key key, transport::Endpoint& endpoint, base::Instant now);
  base::Result<std::unique_ptr<OperationRun>> make_run(const Operation& operation, Key key);
  base::Result<std::unique_ptr<OperationRun>> make_tolerant_run(const Operation& operation,
                                                                Key key);
  std::span<float> residual_of(const Operation& operation);
  void after(Key key, const base::Status& status, transport::Endpoint& endpoint, base::Instant now);
  std::size_t message_cost(const OperationRun& run) const;
  void on_message_event(const transport::Event& event, transport::Endpoint& endpoint,
                        base::Instant now);
  void complete(Active& active, base::Instant now);
  void retire(Key key, transport::Endpoint& endpoint, base::Instant now);
  void tell_floor(Key key, transport::Endpoint& endpoint);
  void on_unexpected(const transport::UnexpectedMessage& event, transport::Endpoint& endpoint,
                     base::Instant now);
  void on_closed(std::uint16_t peer, transport::Endpoint& endpoint, base::Instant now);
  void fail_what_needs(std::uint16_t peer, transport::Endpoint& endpoint, base::Instant now);
  void watch(transport::Endpoint& endpoint, base::Instant now);
  void complete_failed(const Waiting& waiting, base::Instant now);
  // engine_calls.cc
  base::Status call_servers(const Waiting& waiting, RunContext& context);
  bool is_call_event(const transport::Event& event) const;
  void on_call_event(const transport::Event& event, transport::Endpoint& endpoint,
                     base::Instant now);
  void open(const OpenedCall& opened, transport::Endpoint& endpoint, base::Instant now);
  RunContext context(transport::Endpoint& endpoint, base::Instant now) {
    return {endpoint, pool_, now};
  }

  EngineConfig config_;
  RunConfig run_config_;
  ComputePool& pool_;
  EngineListener& listener_;
  ScratchPool scratch_;
  PaceBook paces_;
  std::map<std::uint64_t, std::vector<float>> residuals_;  // by tensor
  std::uint32_t next_sequence_ = 0;
  std::map<Key, Active> running_;
  std::map<Key, Active> leaving_;  // failed, with jobs still in the pool
  std::deque<Waiting> waiting_;
  std::size_t messages_ = 0;  // of running operations
  struct PairCounters {
    std::uint32_t sent = 0;
    std::uint32_t received = 0;
    std::uint32_t received_over = 0;  // all before this one have ended
  };
  std::vector<PairCounters> pairs_;     // by peer
  std::unique_ptr<CallOutbox> outbox_;  // of a worker in a group with servers
  std::unique_ptr<CallIntake> intake_;  // of a server
  bool is_watching_ = false;
  std::vector<std::uint16_t> closed_;  // ranks that were done and left
  std::optional<base::Status> failure_;
};

}  // namespace spillway::collective
