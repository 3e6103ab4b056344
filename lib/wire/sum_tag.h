// SPDX-License-Identifier: Apache-2.0
//
// Tags of sum packets: checks that can be added like the numbers they cover (ADR 17). All ranks of
// an epoch share the same factors and draws; nobody else has them:
//
//   tag of a part     sum of factor[i] * word[i], + draw(PART, rank, chunk)              mod 2^128
//   tag of a sum      the sum of its parts' tags, in any order of adding
//   tag of a result   sum of factor'[i] * word[i], + draw(RESULT, owner, chunk, ranks)
//   tag of the rest   draw(kind, sender, chunk, ranks)
//
// A draw is a keyed function of its arguments. The draw of a part or result is used for one content
// only: a rank retransmits exactly what it sent before. A forger without the factors then succeeds
// with a chance of 2^-65 a try: two words differ by an odd multiple of at most 2^63. A sum that
// counts a rank twice or omits it does not match either, because its draws differ.
//
// Draws cover kind and owner, hence the direction: readers refuse packets whose direction does not
// fit their kind (sum_datagram.h). Packets from the owner have it as their source, and the draw of
// a WANT covers its source. A sum's source may have been written by a switch and is ignored.
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

// Names a chunk, unique within an epoch.
struct ChunkName {
  std::uint64_t operation = 0;
  std::uint64_t signature = 0;  // encodes the operation's arguments
  std::uint16_t owner = 0;
  std::uint16_t piece = 0;
  std::uint16_t chunk = 0;
};

class SumAuth {
 public:
  static base::Result<SumAuth> make(const RunKey& run, std::uint64_t epoch);

  SumTag part(const ChunkName& name, std::uint16_t rank, SumWords words) const;
  // The tag of the parts of these ranks, whose words add up to `words`.
  SumTag sum(const ChunkName& name, const RankSet& ranks, SumWords words) const;
  SumTag result(const ChunkName& name, const RankSet& ranks, SumWords words) const;
  // The tag of a packet without words, from this rank.
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
