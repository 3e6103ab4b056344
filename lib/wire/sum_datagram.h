// SPDX-License-Identifier: Apache-2.0
//
// Sum packets as hosts see them: sets of ranks, tags that add up like the numbers they cover, and
// writers and readers of whole packets. docs/wire.md draws them; sum_packet.h explains each kind.
//
// A reader takes a packet in two steps: first the header, which satisfies every bound stated here,
// then the words under the tag. A packet that a switch trimmed has no words, and nothing in it can
// be trusted. Its arrival only shows that its words were lost.
//
// Values and stateless functions; only SumAuth::make() allocates. Const functions may run on many
// threads.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <span>

#include "base/bytes.h"
#include "base/status.h"
#include "wire/data_packet.h"
#include "wire/key.h"
#include "wire/packet_auth.h"
#include "wire/sum_packet.h"

namespace spillway::wire {

// ------------------------------------------------------------------ sets of ranks

// Set of ranks of a group of at most SPILLWAY_SUM_RANKS, one bit per rank, as in sum packets.
class RankSet {
 public:
  RankSet() = default;
  explicit RankSet(const std::array<std::uint64_t, SPILLWAY_SUM_RANK_WORDS>& words)
      : words_(words) {}
  static RankSet of(std::uint16_t rank) {
    RankSet set;
    set.insert(rank);
    return set;
  }
  // Ranks 0 to count - 1.
  static RankSet below(std::uint16_t count) {
    RankSet set;
    for (std::uint16_t rank = 0; rank < count; ++rank) {
      set.insert(rank);
    }
    return set;
  }

  bool contains(std::uint16_t rank) const {
    return rank < SPILLWAY_SUM_RANKS && (words_[rank / 64] >> (rank % 64) & 1) != 0;
  }
  void insert(std::uint16_t rank) { words_[rank / 64] |= std::uint64_t{1} << (rank % 64); }
  void erase(std::uint16_t rank) { words_[rank / 64] &= ~(std::uint64_t{1} << (rank % 64)); }
  bool empty() const { return (words_[0] | words_[1]) == 0; }
  unsigned size() const {
    return static_cast<unsigned>(std::popcount(words_[0]) + std::popcount(words_[1]));
  }
  // The lowest rank. The set must not be empty.
  std::uint16_t first() const {
    return static_cast<std::uint16_t>(words_[0] != 0 ? std::countr_zero(words_[0])
                                                     : 64 + std::countr_zero(words_[1]));
  }
  bool is_subset_of(const RankSet& other) const { return (*this - other).empty(); }
  bool overlaps(const RankSet& other) const { return !(*this & other).empty(); }

  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (RankSet left = *this; !left.empty();) {
      const std::uint16_t rank = left.first();
      left.erase(rank);
      visit(rank);
    }
  }

  const std::array<std::uint64_t, SPILLWAY_SUM_RANK_WORDS>& words() const { return words_; }

  friend RankSet operator|(const RankSet& a, const RankSet& b) {
    return RankSet({a.words_[0] | b.words_[0], a.words_[1] | b.words_[1]});
  }
  friend RankSet operator&(const RankSet& a, const RankSet& b) {
    return RankSet({a.words_[0] & b.words_[0], a.words_[1] & b.words_[1]});
  }
  friend RankSet operator-(const RankSet& a, const RankSet& b) {
    return RankSet({a.words_[0] & ~b.words_[0], a.words_[1] & ~b.words_[1]});
  }
  friend bool operator==(const RankSet&, const RankSet&) = default;

 private:
  static_assert(SPILLWAY_SUM_RANK_WORDS == 2);
  std::array<std::uint64_t, SPILLWAY_SUM_RANK_WORDS> words_{};
};

// ------------------------------------------------------------------ tags

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
// Draws cover kind and owner, hence the direction: read_sum_header() refuses packets whose
// direction does not fit their kind. Packets from the owner have it as their source, and the draw
// of a WANT covers its source. The source of a sum is ignored, because a switch may have written
// it.
//
// Keys are wiped when their SumAuth is destroyed.
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

// ------------------------------------------------------------------ packets

enum class SumKind : std::uint8_t {
  kPart = SPILLWAY_SUM_PART,
  kRetransmit = SPILLWAY_SUM_RETRANSMIT,
  kFlush = SPILLWAY_SUM_FLUSH,
  kResult = SPILLWAY_SUM_RESULT,
  kWant = SPILLWAY_SUM_WANT,
};

struct SumPacket {
  SumKind kind = SumKind::kPart;
  std::uint8_t marks = 0;    // SPILLWAY_SUM_ADDED and so on
  std::uint8_t urgency = 0;  // the more urgent packet takes a switch's slot
  std::array<std::uint8_t, SPILLWAY_SUM_LEVELS> need{};
  ChunkName chunk;  // a packet just read has the low bits of the operation only
  RankSet ranks;
  RankSet recipients;
  std::uint16_t job = 0;
  std::uint64_t epoch = 0;  // low bits
  std::uint16_t source = 0;
  std::uint16_t destination = 0;
  std::uint8_t priority = 0;
  std::uint8_t importance = 0;
  std::uint8_t path = 0;
  std::uint32_t timestamp_us = 0;
  // Words to write, owned by the caller: SPILLWAY_SUM_WORDS of them if the kind has words.
  std::span<const std::uint64_t> words{};

  bool is_marked(std::uint8_t mark) const { return (marks & mark) != 0; }
};

// Returns the packet's size.
std::size_t write_sum_packet(const SumPacket& packet, const SumAuth& auth,
                             base::MutableByteView out);

// Reads the header without verifying a tag. Refuses packets whose direction (to or from the owner)
// does not fit their kind, and parts of no rank.
PacketFault read_sum_header(base::ByteView bytes, SumPacket& packet);
// True if the packet is shorter than it was sent.
bool is_trimmed(base::ByteView bytes, const SumPacket& packet);

// Verifies a packet whose header was read and whose operation was widened, and copies its words, if
// its kind has any.
PacketFault verify_sum_packet(base::ByteView bytes, const SumAuth& auth, const SumPacket& packet,
                              std::span<std::uint64_t, SPILLWAY_SUM_WORDS> words);

}  // namespace spillway::wire
