// SPDX-License-Identifier: Apache-2.0
//
// Numbers side by side in words of 64 bits, such that adding words adds numbers.
//
// A word has lanes of equal width, the first in its lowest bits. A layout is made for so many
// contributors of numbers so large that no sum of one number from each fills a lane: nothing
// carries over into the next lane, in whatever order words are added, and nothing saturates.
//
// A chunk, what one packet carries, is kChunkWords words: lane k of word i holds number
// k * kChunkWords + i. Numbers that are neighbours stand in neighbouring words, so that packing is
// shifts and ors over whole vectors.
//
// Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace spillway::codec {

inline constexpr std::size_t kChunkWords = 168;
inline constexpr unsigned kMaxContributors = 1U << 14;
// Sums are 32-bit numbers.
inline constexpr unsigned kMaxLaneBits = 32;

using ChunkWords = std::span<std::uint64_t, kChunkWords>;
using ConstChunkWords = std::span<const std::uint64_t, kChunkWords>;

struct LaneLayout {
  unsigned bits;   // of a lane
  unsigned lanes;  // of a word; the bits that are left over stay zero

  // The layout with the most lanes for sums of `contributors` numbers up to `largest`; an error
  // where such a sum does not fit kMaxLaneBits, or there is none of either.
  static base::Result<LaneLayout> make(unsigned contributors, std::uint32_t largest);

  std::size_t values_per_chunk() const { return lanes * kChunkWords; }
  // Chunks that hold so many numbers, one after another.
  std::size_t chunks_for(std::size_t values) const {
    return (values + values_per_chunk() - 1) / values_per_chunk();
  }
  friend bool operator==(const LaneLayout&, const LaneLayout&) = default;
};

// One chunk of numbers, each within a lane. A chunk may be short: what is left is zero.
void pack_chunk(const LaneLayout& layout, std::span<const std::uint32_t> numbers, ChunkWords words);

// The first sums.size() numbers of a chunk.
void unpack_chunk(const LaneLayout& layout, ConstChunkWords words, std::span<std::uint32_t> sums);

}  // namespace spillway::codec
