// SPDX-License-Identifier: Apache-2.0
//
// Set of ranks of a group of at most SPILLWAY_SUM_RANKS, one bit per rank, as in sum packets.
//
// A plain value; any thread.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "wire/sum_packet.h"

namespace spillway::wire {

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

}  // namespace spillway::wire
