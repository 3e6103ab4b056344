// SPDX-License-Identifier: Apache-2.0
//
// A survey: every rank tells every other what it has measured, in a message of 32 bytes at the
// highest priority. The notes travel in the note phase of an operation, whose other messages go on
// regardless. ways.h says when there is one, and what follows from it.
//
// One thread; lives as long as its operation, which is not over before the notes are.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "collective/operation_run.h"

namespace spillway::collective {

// All-reduces whose ways are chosen apart.
enum class Traffic : std::uint8_t { kExact, kTolerant };
inline constexpr std::size_t kTraffics = 2;
inline Traffic traffic_of(const Operation& operation) {
  return operation.tolerance ? Traffic::kTolerant : Traffic::kExact;
}

// A rank's message to the others.
struct RankNote {
  // Bits per second / 1,000 that its link carries; 0: it wants equal shares.
  std::uint64_t capacity = 0;
  bool has_streams = false;  // to every other rank
  // Picoseconds a byte that all-reduces took lately, by Traffic; 0: unknown.
  std::array<std::uint64_t, kTraffics> paces{};

  friend bool operator==(const RankNote&, const RankNote&) = default;
};

class SurveyNotes {
 public:
  // `like`: the id of the operation's messages. The config outlives the notes.
  SurveyNotes(const wire::MessageId& like, const RunConfig& config)
      : like_(like), config_(config), incoming_(config.group.world) {}

  // True for messages of the operation that are such notes.
  static bool is_one(const wire::MessageId& id) {
    return id.phase == wire::Phase::kNote && id.piece == kPart;
  }

  // Sends this rank's note, and expects those of the others.
  base::Status start(const RankNote& own, RunContext& context);
  // Returns the note, if it came.
  std::optional<RankNote> on_received(const transport::ReceiveReport& report);
  void on_sent(const transport::SendReport& report) { messages_.on_sent(report); }

  // The rank no longer takes part. True if something was still under way between the two.
  bool on_left(std::uint16_t peer, RunContext& context);
  void withdraw(RunContext& context);
  bool is_idle() const { return messages_.empty(); }

 private:
  // Pieces and receipts of operations that survey have lower numbers.
  static constexpr std::uint16_t kPart = UINT16_MAX;
  static constexpr std::size_t kBytes = 8 * (2 + kTraffics);
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
