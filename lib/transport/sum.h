// SPDX-License-Identifier: Apache-2.0
//
// The parameters of a sum, and the report of how it ended.
//
// A sum is one piece of an operation's data that several ranks have parts of, in words that may be
// added on the way (wire/sum_packet.h). Parts go to its owner, and results come back from there.
// Each rank's words hold its part at first, and the sum in the end.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "wire/control_packet.h"
#include "wire/rank_set.h"

namespace spillway::transport {

struct SumId {
  std::uint64_t operation = 0;
  std::uint64_t signature = 0;  // of its arguments: shows that ranks call different operations
  std::uint16_t piece = 0;
  std::uint16_t owner = 0;

  friend bool operator==(const SumId&, const SumId&) = default;
};

// Most chunks of one sum: chunk numbers have 16 bits, and the last one stands for all chunks.
inline constexpr std::uint32_t kMaxChunks = UINT16_MAX - 1;

struct SumOptions {
  SumId id;
  // Ranks whose parts the owner waits for, and ranks that get the result. Neither holds the owner.
  wire::RankSet contributors;
  wire::RankSet recipients;
  bool owner_contributes = true;                         // its words are part of the sum
  std::array<std::uint8_t, SPILLWAY_SUM_LEVELS> need{};  // see wire/sum_packet.h
  std::uint8_t priority = 0;
  std::uint8_t urgency = 0;  // how much it wants slots in switches
  // At the owner: how many parts may stay missing, per million parts of all chunks.
  std::uint32_t loss_bound_ppm = 0;
  // This rank's part, SPILLWAY_SUM_WORDS words per chunk, becomes the sum; and the ranks that are
  // in it, by chunk. Both belong to the caller and are used until the sum is over or withdrawn.
  std::span<std::uint64_t> words;
  std::span<wire::RankSet> ranks;

  std::uint32_t chunks() const { return static_cast<std::uint32_t>(ranks.size()); }
};

enum class SumStage : std::uint8_t {
  kFormed,  // at its owner: every chunk is the sum, but not every rank has it
  kOver,    // nothing more of it is sent or taken
};

struct SumReport {
  SumId id;
  SumStage stage = SumStage::kOver;
  std::uint32_t chunks = 0;
  std::uint32_t partial = 0;           // chunks that lack some rank's part
  std::vector<std::uint32_t> missing;  // chunks that lack its part, by rank
  std::uint64_t sent = 0;              // packets, retransmissions included
  std::uint64_t repeated = 0;
  // Only at the owner.
  std::uint64_t added = 0;    // parts that came in sums, formed by switches
  std::uint64_t alone = 0;    // parts that came by themselves
  std::uint64_t flushed = 0;  // chunks whose missing parts were asked for
};

}  // namespace spillway::transport
