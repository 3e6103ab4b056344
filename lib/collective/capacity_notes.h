// SPDX-License-Identifier: Apache-2.0
//
// The notes of a survey (share_book.h): every rank tells every other what its link carries, in a
// message of 8 bytes at the highest priority. Notes travel in the note phase of an operation, whose
// other messages go on regardless.
//
// One thread; lives as long as its operation, which is not over before they are.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "collective/operation_run.h"

namespace spillway::collective {

class CapacityNotes {
 public:
  // `like`: the id of the operation's messages. The config outlives the notes.
  CapacityNotes(const wire::MessageId& like, const RunConfig& config)
      : like_(like), config_(config), incoming_(config.group.world) {}

  // True for messages of the operation that are such notes.
  static bool is_one(const wire::MessageId& id) {
    return id.phase == wire::Phase::kNote && id.piece == kPart;
  }

  // Sends this rank's notes, and expects those of the others.
  base::Status start(std::uint64_t capacity, RunContext& context);
  // Returns the capacity in the note, if the note came.
  std::optional<std::uint64_t> on_received(const transport::ReceiveReport& report);
  void on_sent(const transport::SendReport& report) { messages_.on_sent(report); }

  // The rank no longer takes part. True if something was still under way between the two.
  bool on_left(std::uint16_t peer, RunContext& context);
  void withdraw(RunContext& context);
  bool is_idle() const { return messages_.empty(); }

 private:
  // Pieces and receipts of operations that survey have lower numbers.
  static constexpr std::uint16_t kPart = UINT16_MAX;
  static constexpr std::size_t kBytes = 8;
  using Bytes = std::array<std::uint8_t, kBytes>;

  wire::MessageId id_of(std::uint16_t source) const;

  wire::MessageId like_;
  const RunConfig& config_;
  MessageSet messages_;
  Bytes own_{};
  std::deque<ByteSource> sources_;
  std::vector<Bytes> incoming_;  // by rank
  std::deque<ByteSink> sinks_;
};

}  // namespace spillway::collective
