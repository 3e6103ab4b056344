// SPDX-License-Identifier: Apache-2.0
//
// What a sum promises, and how it ended.
//
// A sum is one piece of an operation's data that several ranks have parts of, in words that may be
// added on the way (wire/sum_packet.h). It has an owner: parts go there, results come from there.
// All take part with the same words: whatever each has in its own becomes the sum.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"
#include "wire/control_packet.h"
#include "wire/rank_set.h"

namespace spillway::transport {

struct SumId {
  std::uint64_t operation = 0;
  std::uint64_t signature = 0;  // of its arguments: ranks that call another one are found out
  std::uint16_t piece = 0;
  std::uint16_t owner = 0;

  friend bool operator==(const SumId&, const SumId&) = default;
};

// Chunks of one sum: their numbers have 16 bits, of which the last stands for all of them.
inline constexpr std::uint32_t kMaxChunks = UINT16_MAX - 1;

struct SumOptions {
  SumId id;
  // Whose parts the owner waits for, besides its own, and who gets the result. Not the owner.
  wire::RankSet contributors;
  wire::RankSet recipients;
  bool owner_contributes = true;                         // what is in its words
  std::array<std::uint8_t, SPILLWAY_SUM_LEVELS> need{};  // see wire/sum_packet.h
  std::uint8_t priority = 0;
  std::uint8_t urgency = 0;  // how much it wants slots in switches
  // At the owner: how many parts of chunks may stay missing, per million of all of them, and when
  // it goes on with what is there.
  std::uint32_t loss_bound_ppm = 0;
  std::optional<base::Duration> deadline{};  // from the call
  // This rank's part, SPILLWAY_SUM_WORDS words a chunk, becomes the sum; and who is in it, by
  // chunk. Both are the caller's, and are touched until the sum is over or was withdrawn.
  std::span<std::uint64_t> words;
  std::span<wire::RankSet> ranks;

  std::uint32_t chunks() const { return static_cast<std::uint32_t>(ranks.size()); }
};

enum class SumStage : std::uint8_t {
  kFormed,  // at its owner: every chunk is the sum, but not everybody has it
  kOver,    // nothing more of it is sent or taken
};

struct SumReport {
  SumId id;
  SumStage stage = SumStage::kOver;
  std::uint32_t chunks = 0;
  std::uint32_t partial = 0;           // chunks that somebody's part is missing in
  std::vector<std::uint32_t> missing;  // of these, by rank
  std::uint64_t sent = 0;              // packets, repeats included
  std::uint64_t repeated = 0;
  // At the owner.
  std::uint64_t added = 0;    // parts that came in sums of several, which switches had formed
  std::uint64_t alone = 0;    // parts that came by themselves
  std::uint64_t flushed = 0;  // chunks whose parts had to be asked for
};

}  // namespace spillway::transport
