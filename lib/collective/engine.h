// SPDX-License-Identifier: Apache-2.0
//
// All operations of one communicator at one rank, over one endpoint: takes them, starts them, hands
// them events, and says when each is over. No I/O and no threads: a driver with sockets and a
// simulated host use it alike.
//
//   admit(), submit()            from the caller; a parameter server has none, it calls serve()
//   on_event()                   what the endpoint's poll_event() gave
//   on_computed()                a job the pool has run
//   on_timeout()                 when the clock passed next_timeout()
//
// Order: collective operations begin in the order of their submission, which is the same at all
// ranks. As many run at once as the endpoint has room for. Ranks never wait for each other in a
// circle (engine_admission.cc says why). Priorities decide, packet by packet, which of them gets on
// first. Sends begin at once while there is room, or while none to the same rank is under way.
// Receives begin when they have found their message (matching.h).
//
// Failure: every operation ends, including those submitted later, when a peer dies, fails or leaves
// too early, when ranks do not agree on an operation, or on an abort. All get one Status that names
// the rank, and the other ranks are told. An engine that failed stays failed. If ranks call
// different operations, callers are told as soon as both calls are known in whole, or after the
// peer timeout (engine_failure.cc).
//
// With parameter servers, a worker sends them a call before each collective operation. A server
// opens the operations that go through it as their calls come (calls.h). It
// completes them to its listener like its own, with the sequence as the token.
//
// An operation may be complete for its caller while a late rank still has to be told of it; it then
// goes on in the background, and counts against the limits.
//
// Limits: EngineLimits. One thread, except for admit().
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collective/calls.h"
#include "collective/engine_config.h"
#include "collective/matching.h"
#include "collective/operation_run.h"
#include "collective/run_factory.h"
#include "collective/survey.h"
#include "collective/ways.h"

namespace spillway::collective {

class EngineListener {
 public:
  virtual ~EngineListener() = default;
  // Called once for every submitted operation. The caller's memory is free again.
  virtual void on_complete(std::uint64_t token, const base::Status& status,
                           const OperationReport& report) = 0;
  // Called once, where EngineConfig::may_stream: large all-reduces may take streams, and are tried
  // on them as soon as Endpoint::has_all_streams() at every rank.
  virtual void on_streams_wanted() {}
};

class Engine {
 public:
  // Pool and listener outlive the engine.
  static base::Result<std::unique_ptr<Engine>> make(const EngineConfig& config, ComputePool& pool,
                                                    EngineListener& listener);

  // Tells the endpoint where numbers begin, after its peers were added and before their packets
  // come, so that it can restore the peers' numbers. If they begin at 0, the first operation is
  // soon enough.
  void begin_numbering(transport::Endpoint& endpoint);

  // Checks whether this rank may call the operation. The layer that takes operations from a caller
  // asks once, and submits only admitted ones. Any thread.
  base::Status admit(const Operation& operation) const;
  // `token` is the caller's own name for the operation. An error means that a limit was reached,
  // and changes nothing; a failed engine takes operations and completes them with its failure.
  base::Status submit(const Operation& operation, std::uint64_t token,
                      transport::Endpoint& endpoint, base::Instant now);
  // At a parameter server, once: serves whatever the workers call from now on.
  base::Status serve(transport::Endpoint& endpoint, base::Instant now);

  void on_event(const transport::Event& event, transport::Endpoint& endpoint, base::Instant now);
  void on_computed(const ComputeJob& job, transport::Endpoint& endpoint, base::Instant now);
  void on_timeout(transport::Endpoint& endpoint, base::Instant now);
  base::Instant next_timeout() const;

  // Ends everything with `cause`, and tells the other ranks which rank is at fault.
  void fail(const base::Status& cause, std::uint16_t culprit, wire::FailureCause reason,
            transport::Endpoint& endpoint, base::Instant now);

  // True if callers were told, or will be when jobs that use their memory have ended.
  bool has_failed() const { return failure_ && !pending_mismatch_; }
  std::optional<base::Status> failure() const {
    return pending_mismatch_ ? std::nullopt : failure_;
  }
  // True while operations are under way that keep the host's processors busy.
  bool is_coding() const { return coding_ > 0; }
  // At a parameter server: all workers have left and nothing is left to do.
  bool is_service_over() const { return inbox_->has_everybody_left() && is_idle(); }
  // Shares of the latest all-reduce that they matter to.
  Shares shares() const { return ways_ ? ways_->shares() : Shares(); }
  std::size_t running() const { return running_.size(); }
  std::size_t waiting() const { return waiting_.size() + held_sends_; }
  // No caller waits for an operation of this rank.
  bool is_done() const {
    return waiting_.empty() && held_sends_ == 0 && leaving_.empty() && !pending_mismatch_ &&
           std::all_of(running_.begin(), running_.end(),
                       [](const auto& entry) { return entry.second.is_complete; });
  }
  // No operation, job or message is left.
  bool is_idle() const {
    return running_.empty() && waiting_.empty() && held_sends_ == 0 && leaving_.empty() &&
           !pending_mismatch_ && (!outbox_ || outbox_->is_empty());
  }
  std::size_t memory_bytes() const { return runs_.memory_bytes(); }

 private:
  struct Active {
    std::unique_ptr<OperationRun> run;
    std::uint64_t token = 0;
    bool is_complete = false;  // its caller was told; it still owes other ranks something
    std::optional<base::Instant> first_message{};  // when the first could leave
    base::Instant last_message{};                  // when the latest came or arrived
    std::unique_ptr<SurveyNotes> notes{};          // notes of a survey, if it is one
    std::optional<Ways::Choice> choice{};          // if its way was chosen by trials

    bool is_idle() const { return run->is_idle() && (!notes || notes->is_idle()); }
  };
  struct Waiting {
    Operation operation;
    std::uint64_t token = 0;
    std::uint64_t sequence = 0;
    base::Instant queued;
  };
  // A rank that was done and left.
  struct Closed {
    std::uint16_t rank = 0;
    std::uint64_t finished_before = 0;  // it has finished all collective operations before this
  };
  // Sequence for collective operations; peer, direction and number for point-to-point ones.
  using Key = std::uint64_t;
  struct HeldSend {
    Waiting waiting;
    Key key = 0;
  };
  // Ranks call different operations, and one of the two calls is not known in whole.
  struct PendingMismatch {
    wire::Mismatch mismatch;
    std::uint16_t culprit = 0;
    base::Instant until;
    bool was_whole = false;               // from the start, so that other ranks know it, too
    std::vector<std::uint16_t> silent{};  // ranks that will say no more
  };
  // A failed operation whose caller will be told when both calls are known.
  struct Unreported {
    std::uint64_t token = 0;
    OperationReport report;
  };
  // Point-to-point messages to one peer.
  struct SendsTo {
    std::uint64_t next = 0;  // number of the next
    std::size_t running = 0;
    std::deque<HeldSend> held;  // until there is room
  };

  Engine(const EngineConfig& config, const ByteLayout& layout, ComputePool& pool,
         EngineListener& listener);

  static Key point_to_point_key(std::uint16_t peer, bool sends, std::uint64_t number);
  static Key key_of(const wire::MessageId& id, std::uint16_t peer, bool sends);
  static bool is_point_to_point_key(Key key) { return (key & kPairKey) != 0; }

  // ---- life of an operation (engine.cc)
  RunContext context(transport::Endpoint& endpoint, base::Instant now) {
    return {endpoint, pool_, now};
  }
  void enqueue(const Waiting& waiting, transport::Endpoint& endpoint, base::Instant now);
  void start(const Waiting& waiting, Key key, transport::Endpoint& endpoint, base::Instant now);
  bool uses_residual_of(std::uint64_t tensor) const;
  void begin(const Waiting& waiting, Key key, std::unique_ptr<OperationRun> run,
             transport::Endpoint& endpoint, base::Instant now);
  void after(Key key, const base::Status& status, transport::Endpoint& endpoint, base::Instant now);
  void complete(Active& active, base::Instant now);
  static void count_job(Active& active, const ComputeJob& job, base::Instant now);
  static void count_parts(const Active& active, OperationReport& report);
  void retire(Key key, transport::Endpoint& endpoint, base::Instant now);
  void retire_in_endpoint(Key key, transport::Endpoint& endpoint);
  base::Duration timeout_of(const OperationRun& run) const;
  void watch(transport::Endpoint& endpoint, base::Instant now);

  // ---- admission (engine_admission.cc)
  bool may_begin_next() const;
  void start_waiting(transport::Endpoint& endpoint, base::Instant now);
  void count_in(Key key, const OperationRun& run);
  void count_out(Key key, const OperationRun& run);
  std::size_t& messages_of(Key key);
  void send_in_turn(const Waiting& waiting, Key key, transport::Endpoint& endpoint,
                    base::Instant now);
  void use_room_for_pairs(std::optional<std::uint16_t> peer, transport::Endpoint& endpoint,
                          base::Instant now);

  // ---- events: of runs (engine_events.cc)
  void on_message_event(const transport::Event& event, transport::Endpoint& endpoint,
                        base::Instant now);
  void on_summed(const transport::SumReport& report, transport::Endpoint& endpoint,
                 base::Instant now);
  // ---- events: sends and receives
  static bool is_numbered_receive(Key key);
  static bool is_numbered_send(Key key);
  Key next_unnumbered_key();
  void start_point_to_point(const Waiting& waiting, transport::Endpoint& endpoint,
                            base::Instant now);
  void post(const Waiting& waiting, transport::Endpoint& endpoint, base::Instant now);
  void on_announced(const wire::MessageId& message, transport::Endpoint& endpoint,
                    base::Instant now);
  void start_matched(transport::Endpoint& endpoint, base::Instant now);
  // ---- events: calls to parameter servers
  base::Status call_servers(const Waiting& waiting, RunContext& context);
  bool is_call_event(const transport::Event& event) const;
  void on_call_event(const transport::Event& event, transport::Endpoint& endpoint,
                     base::Instant now);
  void open(const OpenedCall& opened, transport::Endpoint& endpoint, base::Instant now);
  // ---- events: surveys
  bool is_surveyed(const Operation& operation) const;
  Ways::Choice usual_choice() const;
  std::uint64_t own_capacity(const transport::Endpoint& endpoint, base::Instant now) const;
  void survey(Key key, transport::Endpoint& endpoint, base::Instant now);
  void on_note_event(const transport::Event& event, Key key, transport::Endpoint& endpoint,
                     base::Instant now);
  void leave_surveys(const Closed& closed, transport::Endpoint& endpoint, base::Instant now);

  // ---- failure: of peers (engine_failure.cc)
  void on_peer_dead(const transport::PeerDead& dead, transport::Endpoint& endpoint,
                    base::Instant now);
  void on_stalled(const transport::MessageStalled& stall, transport::Endpoint& endpoint,
                  base::Instant now);
  void on_peer_failed(const transport::PeerFailed& event, transport::Endpoint& endpoint,
                      base::Instant now);
  void on_closed(const transport::PeerFailed& event, transport::Endpoint& endpoint,
                 base::Instant now);
  void notify_runs_of(const Closed& closed, transport::Endpoint& endpoint, base::Instant now);
  void fail_runs_that_need(std::uint16_t peer, transport::Endpoint& endpoint, base::Instant now);
  // ---- failure: the end of all operations
  void end_all(const base::Status& cause, std::uint16_t culprit, wire::FailureCause reason,
               transport::Endpoint& endpoint, base::Instant now);
  void fail_waiting(const Waiting& waiting, base::Instant now);
  void report_failure(std::uint64_t token, const OperationReport& report);
  // ---- failure: mismatches
  void on_unexpected(const transport::UnexpectedMessage& event, transport::Endpoint& endpoint,
                     base::Instant now);
  const Operation* own_call(const wire::Mismatch& mismatch) const;
  void resolve_or_wait(wire::Mismatch mismatch, std::uint16_t culprit,
                       transport::Endpoint& endpoint, base::Instant now);
  void stop_waiting_for(std::uint16_t rank, transport::Endpoint& endpoint);
  void resolve_if_complete(transport::Endpoint& endpoint);
  void resolve_mismatch(transport::Endpoint& endpoint);

  EngineConfig config_;
  RunFactory runs_;
  ComputePool& pool_;
  EngineListener& listener_;
  std::uint64_t next_sequence_ = 0;
  bool is_numbering_ = false;  // the endpoint was told where numbers begin
  std::map<Key, Active> running_;
  std::map<Key, Active> leaving_;  // failed, with jobs still in the pool
  std::deque<Waiting> waiting_;
  std::size_t group_running_ = 0;  // running operations of the group
  std::size_t coding_ = 0;         // running ones that the host's processors code
  std::size_t messages_ = 0;       // of the group's operations
  std::size_t sent_messages_ = 0;  // of sends
  std::size_t received_messages_ = 0;
  std::size_t held_sends_ = 0;
  std::vector<SendsTo> sends_to_;  // by peer
  ReceiveMatching matching_;
  std::uint64_t unnumbered_ = 0;  // point-to-point operations without a number, so far
  std::unique_ptr<Ways> ways_;    // null where there is nothing to choose
  bool has_asked_for_streams_ = false;
  std::unique_ptr<CallOutbox> outbox_;  // at a worker with servers only
  std::unique_ptr<CallInbox> inbox_;    // at a server only
  bool is_watching_ = false;
  std::vector<Closed> closed_;
  std::optional<base::Status> failure_;
  std::optional<PendingMismatch>
      pending_mismatch_;  // until it is over, callers are not told of failure_
  std::vector<Unreported> unreported_;
};

}  // namespace spillway::collective
