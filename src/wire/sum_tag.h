// SPDX-License-Identifier: Apache-2.0
//
// The tags of sum packets: checks that can be added like the numbers they are about (ADR 17). All
// ranks of an epoch have the same factors and draws, nobody else has them:
//
//   tag of a part     sum of factor[i] * word[i], + draw(PART, rank, chunk)              mod 2^128
//   tag of a sum      the sum of its parts' tags, whoever added them up
//   tag of a result   sum of factor'[i] * word[i], + draw(RESULT, owner, chunk, ranks)
//   tag of the rest   draw(kind, sender, chunk, ranks)
//
// A draw is a keyed function of what it is of. One of a part or a result is used for one content
// only: what a rank sends again is what it sent. Then a tag matches something else with a chance of
// 2^-65 a try for who does not know the factors: two words differ by an odd multiple of at most
// 2^63. Nor does a sum match that has a rank twice or not at all, for the draws do not.
//
// Draws cover kind and owner, hence the direction: readers refuse what goes another way than its
// kind does (sum_datagram.h). What comes from the owner has it for its source; a WANT's source is
// in its draw; that of a sum, which a switch may have written, counts for nothing.
//
// A value; const functions may run on many threads. Keys are wiped with their owner.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "wire/key.h"
#include "wire/packet_auth.h"
#include "wire/rank_set.h"

namespace spillway::wire {

using SumTag = spillway_sum_tag;
using SumWords = std::span<const std::uint64_t, SPILLWAY_SUM_WORDS>;

// Which chunk: of all that an epoch ever has.
struct ChunkName {
  std::uint64_t operation = 0;
  std::uint64_t signature = 0;  // of the operation's arguments
  std::uint16_t owner = 0;
  std::uint16_t piece = 0;
  std::uint16_t chunk = 0;
};

class SumAuth {
 public:
  static base::Result<SumAuth> make(const RunKey& run, std::uint64_t epoch);

  SumTag part(const ChunkName& name, std::uint16_t rank, SumWords words) const;
  // What the parts of these ranks, added up to `words`, have together.
  SumTag sum(const ChunkName& name, const RankSet& ranks, SumWords words) const;
  SumTag result(const ChunkName& name, const RankSet& ranks, SumWords words) const;
  // Of a packet without words, from this rank.
  SumTag bare(const ChunkName& name, std::uint8_t kind, std::uint16_t sender,
              const RankSet& ranks) const;

 private:
  __extension__ using Wide = unsigned __int128;
  using Factors = std::array<Wide, SPILLWAY_SUM_WORDS>;
  struct Keys : InKeyMemory {
    Factors parts;
    Factors results;
    PacketAuth draws;

    ~Keys();
  };

  explicit SumAuth(std::unique_ptr<Keys> keys) : keys_(std::move(keys)) {}

  static Wide product_sum(std::span<const Wide> factors, std::span<const std::uint64_t> words);
  Wide draw(const ChunkName& name, std::uint8_t kind, std::uint16_t rank,
            const RankSet& ranks) const;

  std::unique_ptr<Keys> keys_;
};

}  // namespace spillway::wire
