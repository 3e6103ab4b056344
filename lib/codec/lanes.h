// SPDX-License-Identifier: Apache-2.0
//
// Integers that can be added without decoding, shared by the codecs `levels` (level_code.h) and
// `blocks` (block_code.h): numbers packed into 64-bit words such that adding words adds numbers,
// and the scale that gives all ranks' numbers the same unit.
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

#include <algorithm>
#include <bit>
#include <cmath>
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

// ------------------------------------------------------------------ the shared scale
//
// The one scale per row that all ranks code with. Numbers can be added only if their unit is the
// same for all ranks.
//
// Each rank reports one float per row, its measure: for level codes the row's root mean square
// (rotate_for_levels), for block codes its largest magnitude (measure_block). A measure is zero or
// more, or NaN if the row is not finite. The shared scale is the largest measure. It is
// either
//
//   exact       measures travel ahead of the data, while rows are rotated
//   predicted   predict_scale() of the last step's largest measure; measures travel beside the
//               data, for the next step, and clipped values are counted
//
// Special scales mean the same for all ranks: 0 is a row of zeros, NaN a row of NaN. A prediction
// cannot express either, so its users decode to NaN if a measure turns out to be NaN.

// True if the scale is zero or NaN.
inline bool is_special_scale(float scale) {
  return scale == 0.0F || std::isnan(scale);
}

// The larger of two measures; NaN is larger than all numbers. Order and repetition do not matter,
// so switches and owners may combine measures.
//
// Among non-negative floats the larger has the larger bit pattern; NaN's exceeds all others.
inline float larger_scale(float left, float right) {
  return std::bit_cast<float>(
      std::max(std::bit_cast<std::uint32_t>(left), std::bit_cast<std::uint32_t>(right)));
}

// The scale for this step, predicted from the last step's largest measure. Returns zero (no
// prediction) if that was zero or not finite, or if the product overflows. Then only an exact
// scale works.
inline float predict_scale(float last_largest, float headroom) {
  const float predicted = last_largest * headroom;
  return std::isfinite(predicted) ? predicted : 0.0F;
}

// Room for rows to grow between steps. A slightly larger value costs little: the rounding error
// grows with its square.
inline constexpr float kScaleHeadroom = 1.25F;

}  // namespace spillway::codec
