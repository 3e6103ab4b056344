// SPDX-License-Identifier: Apache-2.0
//
// Numbers packed into 64-bit words such that adding words adds numbers.
//
// A word has lanes of equal width, the first in its lowest bits. A layout is made for a number of
// contributors and a largest number. The sum of one number from each contributor always fits a
// lane. So nothing carries into the next lane, in whatever order words are added, and nothing
// saturates.
//
// A chunk is what one packet carries: kChunkWords words. Lane k of word i holds number k *
// kChunkWords + i. Neighbouring numbers are in neighbouring words, so packing is shifts and ors
// over whole vectors.
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
  unsigned bits;   // per lane
  unsigned lanes;  // per word; leftover bits stay zero

  // The layout with the most lanes for sums of `contributors` numbers up to `largest`. Fails if
  // such a sum exceeds kMaxLaneBits, or if either argument is zero.
  static base::Result<LaneLayout> make(unsigned contributors, std::uint32_t largest);

  std::size_t values_per_chunk() const { return lanes * kChunkWords; }
  // Number of chunks needed for `values` numbers.
  std::size_t chunks_for(std::size_t values) const {
    return (values + values_per_chunk() - 1) / values_per_chunk();
  }
  friend bool operator==(const LaneLayout&, const LaneLayout&) = default;
};

// Packs one chunk of numbers, each of which must fit a lane. A short chunk is padded with zeros.
void pack_chunk(const LaneLayout& layout, std::span<const std::uint32_t> numbers, ChunkWords words);

// Unpacks the first sums.size() numbers of a chunk.
void unpack_chunk(const LaneLayout& layout, ConstChunkWords words, std::span<std::uint32_t> sums);

}  // namespace spillway::codec
