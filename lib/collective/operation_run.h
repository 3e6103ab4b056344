// SPDX-License-Identifier: Apache-2.0
//
// An operation under way at one rank: it is told what happens, and does what comes next. The engine
// owns it, tells it of its own messages and jobs only, and asks after each call whether it is done.
// Five kinds: exact/plan_run.h carries out a plan, tolerant/tolerant_run.h may lose something,
// summed/summed_run.h lets switches add, entropy/entropy_run.h codes by what both ends remember,
// levels/levels_run.h is made of others: inside hosts, and between them.
//
// A run works with:
//   RunConfig     what all runs of a communicator share
//   ComputeJob    work that takes a while and needs nothing but memory: sums, encoding, decoding. A
//                 ComputePool runs it, on another thread or at once, and has the engine told
//                 (Engine::on_computed) on the engine's own thread, in any order. A job's memory
//                 belongs to its run, which outlives it
//   MessageSet    the messages that an operation has in the endpoint: expected or sent, not ended
//
// One thread, the engine's, except for jobs. A run may be destroyed once it is idle: none of its
// messages is in the endpoint, and none of its jobs in the pool.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "collective/byte_payload.h"
#include "collective/report.h"
#include "transport/endpoint.h"
#include "transport/message_table.h"

namespace spillway::collective {

class ComputeJob {
 public:
  // The part of an operation that a job is (PartTimes).
  enum class Part : std::uint8_t { kEncode, kDecode, kCopy };

  virtual ~ComputeJob() = default;
  // Runs on any thread; touches only what the job was given.
  virtual void run() = 0;

  Part part = Part::kDecode;
  base::Duration took{};        // once it has run, if its pool has a clock
  base::Status failure{};       // once it has run: why it failed
  bool sleeps = false;          // waits for a device nearly all of its time
  std::uint64_t operation = 0;  // key of the operation that owns the job
  std::uint32_t tag = 0;        // the run's own number for it
  std::uint8_t priority = 0;
};

class ComputePool {
 public:
  virtual ~ComputePool() = default;
  virtual void submit(ComputeJob& job) = 0;
};

class MessageScope;

// The surroundings of a run during one call. Runs expect, send and end messages through it, so that
// a run may be part of another one (message_scope.h).
struct RunContext {
  transport::Endpoint& endpoint;
  ComputePool& pool;
  base::Instant now;
  MessageScope* scope = nullptr;  // of a run that is part of another one

  base::Status expect(const transport::ReceiveOptions& options);
  base::Status send(const transport::SendOptions& options);
  void withdraw(const wire::MessageId& id, std::uint16_t peer);
  void cancel(const wire::MessageId& id);
};

// Outlives the runs.
struct RunConfig {
  Group group;
  packetize::Job job;
  ByteLayout layout;             // of messages that carry bytes as they are
  PeerMemory* memory = nullptr;  // shared with ranks of this machine, if any
};

// The engine's key of an operation. For group operations it is their number. For point-to-point
// ones the lower bits are the number, which counts per pair and direction; the upper bits tell
// these apart.
inline constexpr std::uint64_t kPairKey = std::uint64_t{1} << 63;
inline constexpr unsigned kPairNumberBits = 45;
constexpr std::uint64_t operation_number(std::uint64_t key) {
  return (key & kPairKey) == 0 ? key : key & ((std::uint64_t{1} << kPairNumberBits) - 1);
}

class OperationRun {
 public:
  // `key` is the engine's key (operation_number()).
  OperationRun(const Operation& operation, std::uint64_t key, const RunConfig& config)
      : config_(config), key_(key), signature_(collective::signature(operation)) {
    report_.sequence = operation_number(key);
    report_.operation = operation;
    report_.peers.resize(config.group.world);
  }
  virtual ~OperationRun() = default;
  OperationRun(const OperationRun&) = delete;
  OperationRun& operator=(const OperationRun&) = delete;

  virtual base::Status start(RunContext& context) = 0;
  virtual base::Status on_received(const transport::ReceiveReport& report, RunContext& context) = 0;
  virtual base::Status on_sent(const transport::SendReport& report, RunContext& context) = 0;
  virtual base::Status on_summed(const transport::SumReport& /*report*/, RunContext& /*context*/) {
    return {};
  }
  virtual base::Status on_computed(std::uint32_t tag, RunContext& context) = 0;
  // When on_timeout() is due; transport::kNever for never.
  virtual base::Instant next_timeout() const { return transport::kNever; }
  virtual base::Status on_timeout(RunContext& /*context*/) { return {}; }

  // The result is in place, and the caller's memory is the caller's again.
  virtual bool is_done() const = 0;
  // Nothing of it is in the endpoint or the pool any more.
  virtual bool is_idle() const = 0;
  // Withdraws its messages. Jobs go on until they end.
  virtual void withdraw(RunContext& context) = 0;

  // Messages it may have in the endpoint at one time.
  virtual std::size_t message_count() const = 0;
  // Ranks from which something is still missing.
  virtual std::vector<std::uint16_t> awaited() const = 0;
  // The rank has left. It had finished this operation, and nothing was due to it or from it any
  // more.
  virtual void on_left(std::uint16_t /*peer*/, RunContext& /*context*/) {}
  // True if the operation cannot end without that rank from here on.
  virtual bool needs(std::uint16_t peer) const = 0;

  const Operation& operation() const { return report_.operation; }
  std::uint64_t signature() const { return signature_; }
  OperationReport& report() { return report_; }

 protected:
  wire::MessageId message_id(wire::Phase phase, std::uint32_t piece, std::uint16_t source) const {
    return {.operation = report_.sequence,
            .signature = signature_,
            .piece = static_cast<std::uint16_t>(piece),
            .source = source,
            .phase = phase};
  }
  // The job comes back with this tag, through on_computed().
  void hand_out(ComputeJob& job, std::uint32_t tag, RunContext& context) {
    job.operation = key_;
    job.tag = tag;
    job.priority = operation().priority;
    context.pool.submit(job);
  }

  const RunConfig& config_;
  OperationReport report_;

 private:
  std::uint64_t key_;
  std::uint64_t signature_;
};

class MessageSet {
 public:
  base::Status expect(const transport::ReceiveOptions& options, RunContext& context) {
    const transport::MessageKey key{options.id, options.id.source};
    return keep(key, [&] { return context.expect(options); });
  }
  base::Status send(const transport::SendOptions& options, RunContext& context) {
    const transport::MessageKey key{options.id, options.to};
    return keep(key, [&] { return context.send(options); });
  }
  void on_received(const transport::ReceiveReport& report) { drop({report.id, report.id.source}); }
  void on_sent(const transport::SendReport& report) { drop({report.id, report.to}); }

  // Withdraws the messages for which `condition` holds.
  template <typename Condition>
  void withdraw_if(RunContext& context, Condition&& condition) {
    for (auto key = keys_.begin(); key != keys_.end();) {
      if (condition(*key)) {
        context.withdraw(key->message, key->peer);
        --counts_[counter_of(key->message.phase, key->message.piece)];
        key = keys_.erase(key);
      } else {
        ++key;
      }
    }
  }

  bool empty() const { return keys_.empty(); }
  // Messages of one number in one phase, with all peers.
  std::size_t count(wire::Phase phase, std::uint32_t piece) const {
    const auto found = counts_.find(counter_of(phase, piece));
    return found == counts_.end() ? 0 : found->second;
  }
  template <typename Condition>
  bool any(Condition&& condition) const {
    return std::any_of(keys_.begin(), keys_.end(), condition);
  }
  // The ranks at their other ends, each once, in order.
  std::vector<std::uint16_t> peers() const {
    std::vector<std::uint16_t> ranks;
    for (const transport::MessageKey& key : keys_) {
      ranks.push_back(key.peer);
    }
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    return ranks;
  }

 private:
  struct Hash {
    std::size_t operator()(const transport::MessageKey& key) const {
      return transport::hash_of(key);
    }
  };

  static std::uint32_t counter_of(wire::Phase phase, std::uint32_t piece) {
    return static_cast<std::uint32_t>(phase) << 16 | piece;
  }
  // Recorded first: the endpoint must not have a message that cannot be withdrawn.
  template <typename Begin>
  base::Status keep(const transport::MessageKey& key, const Begin& begin) {
    std::size_t& count = counts_[counter_of(key.message.phase, key.message.piece)];
    const bool is_new = keys_.insert(key).second;
    count += is_new ? 1 : 0;
    base::Status status = begin();
    if (!status.ok() && is_new) {
      drop(key);
    }
    return status;
  }
  void drop(const transport::MessageKey& key) {
    if (keys_.erase(key) == 0) {
      return;
    }
    const auto found = counts_.find(counter_of(key.message.phase, key.message.piece));
    if (--found->second == 0) {
      counts_.erase(found);
    }
  }

  std::unordered_set<transport::MessageKey, Hash> keys_;
  std::unordered_map<std::uint32_t, std::size_t> counts_;  // by phase and piece
};

}  // namespace spillway::collective
