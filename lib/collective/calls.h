// SPDX-License-Identifier: Apache-2.0
//
// How ranks tell each other of the operations that they call: in words, where two ranks call
// different ones, and as bytes, where a worker calls parameter servers.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "collective/operation.h"
#include "collective/operation_run.h"
#include "wire/control_packet.h"

namespace spillway::collective {

// The texts that ranks exchange when two of them call different operations.
//
// The rank that notices knows its own call, and only the signature of the other one. Each rank
// therefore puts the calls it knows into its LEAVE and completes them from the LEAVEs of others
// (Engine::resolve_or_wait()), until both calls are whole.
//
// Peers' texts are made printable when they go into a sentence. Pure.

// At most SPILLWAY_MAX_CALL_TEXT bytes of `text`.
wire::CallText call_text(std::uint16_t rank, std::string_view text, bool is_whole);
wire::CallText call_text(std::uint16_t rank, const Operation& operation);

// False for the mismatch of a peer that knows neither call.
bool has_texts(const wire::Mismatch& mismatch);
bool is_whole(const wire::Mismatch& mismatch);
// Takes the calls that `from` knows whole and `mismatch` does not, if both are about one operation.
void fill_in(wire::Mismatch& mismatch, const wire::Mismatch& from);

std::string mismatch_sentence(const wire::Mismatch& mismatch, const Group& group);

// A call tells a parameter server what a worker is about to do: an operation as 32 bytes,
// little-endian.
//
//   0 version (1)   4 algorithm    8 count (8 bytes)      20 loss_bound_ppm (4)
//   1 kind          5 priority     16 precision           24 least_contributors (8, a double)
//   2 type          6 root (2)     17 gather_precision
//   3 reduction                    18 min_planes
//                                  19 flags: 1 tolerant, 4 error feedback,
//                                     8 predicted scale; bits 4 and 5: codec
//
// Without a tolerance everything behind the count is zero. A server refuses
// a call with flags that it does not know. Matters of the worker alone
// (buffers, its name for a tensor with error feedback) are left out. docs/wire.md says how calls
// travel.
//
// Plain values; any bytes give an operation or an error.

inline constexpr std::size_t kCallBytes = 32;
using CallBytes = std::array<std::uint8_t, kCallBytes>;

CallBytes encode_call(const Operation& operation);
// The operation has no buffers. validate() says whether its numbers make sense.
base::Result<Operation> parse_call(base::ByteView bytes);

// True if two workers mean the same operation; their priorities may differ.
bool are_alike(const Operation& a, const Operation& b);

// How calls get from workers to parameter servers: one message to each server for every collective
// operation, in the point-to-point phase, with the operation's number. Reliable, at the highest
// priority: a server that has not heard the call does not expect the data that follows.
//
// CallOutbox, at a worker: keeps calls until their servers have them.
//
// CallInbox, at a server: the first worker that calls an operation opens it, in the order of the
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

class CallInbox {
 public:
  static constexpr std::uint32_t kMaxAhead = 4096;

  // `config` outlives the intake. Operations are numbered from `first` on.
  CallInbox(const RunConfig& config, std::uint64_t first);

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
