// SPDX-License-Identifier: Apache-2.0
//
// The record of one operation, from the call to its end: arguments, state and packet counts. The
// flight recorder keeps records, metrics add them up, the timeline draws them.
//
// Fixed size, trivially copyable, no allocation: it is copied word by word while others read. Names
// are static text. An instant that has not come is Instant().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/status.h"
#include "base/units.h"

namespace spillway::observe {

enum class OperationState : std::uint8_t { kQueued, kRunning, kDone, kFailed };

// Static text; safe in a signal handler.
const char* operation_state_name(OperationState state);

struct OperationRecord {
  static constexpr std::size_t kMaxLateRanks = 8;
  static constexpr std::size_t kMessageBytes = 160;

  std::uint64_t sequence = 0;
  OperationState state = OperationState::kQueued;
  std::uint8_t priority = 0;
  const char* kind = "";  // "all_reduce"
  const char* type = "";  // "float32"
  const char* op = "";    // "sum"
  const char* algorithm = "";
  const char* carrier = "";  // "tcp" where trials chose it
  std::uint64_t count = 0;   // elements
  std::uint64_t bytes = 0;   // of user data
  base::Instant queued{};
  base::Instant started{};
  base::Instant finished{};

  base::StatusCode error = base::StatusCode::kOk;
  std::int32_t culprit_rank = -1;  // the rank at fault; -1: none in particular
  std::array<char, kMessageBytes> message{};

  std::uint64_t packets_expected = 0;  // each ends whole, trimmed or missing
  std::uint64_t packets_whole = 0;
  std::uint64_t packets_trimmed = 0;
  std::uint64_t packets_missing = 0;
  std::uint64_t packets_duplicate = 0;
  std::uint64_t packets_retransmitted = 0;
  std::uint64_t wire_bytes_sent = 0;
  std::uint64_t coded_bytes_sent = 0;    // of messages that travelled as code
  std::uint64_t coded_bytes_spared = 0;  // by that
  std::uint64_t wire_bytes_received = 0;

  std::uint32_t contributors = 0;  // ranks in the result, for the shard with the fewest
  std::uint32_t late_count = 0;    // late_ranks may name fewer
  std::array<std::uint32_t, kMaxLateRanks> late_ranks{};

  bool finished_already() const { return state >= OperationState::kDone; }
  // From the call to the end, or to `now` if the operation has not ended.
  base::Duration duration(base::Instant now) const {
    return (finished_already() ? finished : now) - queued;
  }
  std::size_t named_late_ranks() const {
    return late_count < kMaxLateRanks ? late_count : kMaxLateRanks;
  }

  void add_late_rank(std::uint32_t rank);
  // Sets the state to kFailed and cuts a long message.
  void fail(base::StatusCode code, std::string_view why, std::int32_t culprit, base::Instant at);
};

static_assert(std::is_trivially_copyable_v<OperationRecord>);

// Text for places such as signal handlers: no allocation, no locale, no stdio, no failure.
//
// Fixed-size text holds names and messages from outside, as UTF-8 that any JSON or metrics reader
// takes. SignalText gathers text for a descriptor in a small buffer on the stack. end_line() writes
// it in one write() unless it is longer than the buffer. Text that cannot be written is lost.
//
// One thread.

// Copies as much of `text` as fits into `out` with a terminating zero, cut between characters.
// Bytes outside a UTF-8 character, and zeros, become '?'.
void copy_clean(std::string_view text, std::span<char> out);

std::string clean_text(std::string_view text);

class SignalText {
 public:
  // Small: alternative signal stacks often have 8 KiB.
  static constexpr std::size_t kBufferBytes = 2048;

  explicit SignalText(int fd) : fd_(fd) {}

  SignalText& text(std::string_view text);
  SignalText& number(std::int64_t number);
  // Adds a JSON string; `text` is UTF-8.
  SignalText& quoted(std::string_view text);
  void end_line();

 private:
  void put(char c);
  void flush();

  int fd_;
  std::size_t used_ = 0;
  std::array<char, kBufferBytes> buffer_;
};

}  // namespace spillway::observe
