// SPDX-License-Identifier: Apache-2.0
//
// How calls get from workers to parameter servers: one message to each server for every collective
// operation, in the point-to-point phase, with the operation's number. Reliable, at the highest
// priority: a server that has not heard the call does not expect the data that follows.
//
// CallOutbox, at a worker: keeps calls until their servers have them.
//
// CallIntake, at a server: the first worker that calls an operation opens it, in the order of the
// operations' numbers; the calls of the others must be alike. A worker that comes late may still
// call operations that are long over.
//
//   on_received()   a call came; returns an error that names both ranks if it is unlike another's
//   next()          the next operation to open, if its call is there
//   leave()         a worker no longer takes part
//
// Limits: `window()` calls are expected of each worker at a time, and none of operations that are
// kMaxAhead or more before those of the slowest: what is kept for comparison is bounded. One
// thread, the engine's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "collective/operation_run.h"
#include "collective/servers/call.h"

namespace spillway::collective {

// The id of a call.
wire::MessageId call_id(std::uint64_t sequence, std::uint16_t worker);
inline constexpr std::uint8_t kCallPriority = SPILLWAY_PRIORITIES - 1;

class CallOutbox {
 public:
  // `config` outlives the outbox.
  explicit CallOutbox(const RunConfig& config) : config_(config) {}

  base::Status send(const Operation& operation, std::uint64_t sequence, RunContext& context);
  void on_sent(const transport::SendReport& report);
  void withdraw(RunContext& context);

  bool is_empty() const { return calls_.empty(); }
  std::size_t size() const { return calls_.size(); }

 private:
  struct Outgoing {
    Outgoing(const Operation& operation, const RunConfig& config)
        : bytes(encode_call(operation)), source(bytes.data(), bytes.size(), config.layout) {}

    const CallBytes bytes;
    ByteSource source;
    std::uint16_t open = 0;  // servers that do not have it yet
  };

  const RunConfig& config_;
  MessageSet messages_;
  std::map<std::uint64_t, Outgoing> calls_;  // by sequence; nodes keep their place
};

// Why a call cannot be taken, and which rank is at fault.
struct CallFault {
  base::Status status;
  std::uint16_t culprit = 0;
  wire::FailureCause cause = wire::FailureCause::kMismatch;
  std::optional<wire::Mismatch> mismatch{};  // if workers call different operations
};

struct OpenedCall {
  Operation operation;
  std::uint64_t sequence = 0;
  std::uint16_t caller = 0;
};

class CallIntake {
 public:
  static constexpr std::uint32_t kMaxAhead = 4096;

  // `config` outlives the intake. Operations are numbered from `first` on.
  CallIntake(const RunConfig& config, std::uint64_t first);

  // Expects the first calls. The endpoint must know where numbers begin.
  base::Status start(RunContext& context);
  std::optional<CallFault> on_received(const transport::ReceiveReport& report, RunContext& context);
  std::optional<OpenedCall> next();

  void leave(std::uint16_t worker, RunContext& context);
  bool has_everybody_left() const;
  void withdraw(RunContext& context);

 private:
  struct Expected {
    Expected(const RunConfig& config) : sink(bytes.data(), bytes.size(), config.layout) {}
    Expected(const Expected&) = delete;
    Expected& operator=(const Expected&) = delete;

    CallBytes bytes{};
    ByteSink sink;
  };
  struct Worker {
    std::map<std::uint64_t, Expected> expected;  // by sequence; nodes keep their place
    std::uint64_t next_expected = 0;
    bool has_left = false;

    // All its calls before this one have come.
    std::uint64_t next() const {
      return expected.empty() ? next_expected : expected.begin()->first;
    }
  };
  struct Heard {
    Operation operation;
    std::uint16_t caller = 0;
  };

  std::uint32_t window() const;
  std::uint64_t slowest() const;
  base::Status expect_more(RunContext& context);
  std::optional<CallFault> compare(const Operation& operation, std::uint64_t sequence,
                                   std::uint16_t caller);

  const RunConfig& config_;
  MessageSet messages_;
  std::vector<Worker> workers_;
  std::map<std::uint64_t, Heard> heard_;  // by sequence: until every worker has called it
  std::uint64_t next_;                    // the next to open
};

}  // namespace spillway::collective
