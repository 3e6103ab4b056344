// SPDX-License-Identifier: Apache-2.0
//
// A set of a tensor's indices, one bit each: non-zero values, values predicted to be non-zero, or
// numbers of a message that did not arrive. encode_support() turns a set into few bytes.
//
// Bit i % 64 of word i / 64 tells whether index i is in the set; bits beyond the length are zero.
// The caller ensures that combined sets have the same length.
//
// A Support is a plain value; any number of threads may share it while it does not change. All
// functions are pure.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/status.h"

namespace spillway::codec::sketch {

inline constexpr std::size_t kWordBits = 64;

class Support {
 public:
  Support() = default;
  // The empty set for a tensor of that length.
  explicit Support(std::size_t length)
      : length_(length), words_((length + kWordBits - 1) / kWordBits) {}
  static Support all(std::size_t length);
  static Support of_nonzero(std::span<const std::int32_t> values);

  std::size_t length() const { return length_; }
  std::size_t count() const;
  bool contains(std::size_t index) const {
    return (words_[index / kWordBits] >> (index % kWordBits) & 1U) != 0;
  }
  void insert(std::size_t index) {
    SPILLWAY_DCHECK(index < length_);
    words_[index / kWordBits] |= std::uint64_t{1} << (index % kWordBits);
  }

  std::span<const std::uint64_t> words() const { return words_; }
  // For code that computes 64 bits at a time; bits beyond the length must stay zero.
  std::span<std::uint64_t> words() { return words_; }
  // The bits of a word that stand for indices: all, except in the last word.
  std::uint64_t valid_bits(std::size_t word) const;

  Support& operator|=(const Support& other);
  Support without(const Support& other) const;
  // True if they have an index in common.
  bool meets(const Support& other) const;
  friend bool operator==(const Support&, const Support&) = default;

  // Calls visit(index) in ascending order.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (std::size_t word = 0; word < words_.size(); ++word) {
      for (std::uint64_t left = words_[word]; left != 0; left &= left - 1) {
        visit(word * kWordBits + static_cast<std::size_t>(std::countr_zero(left)));
      }
    }
  }

 private:
  std::size_t length_ = 0;
  std::vector<std::uint64_t> words_;
};

// Collects the values inside the set, in order. `dense` has room for count() of them.
void gather(const Support& support, std::span<const std::int32_t> values,
            std::span<std::int32_t> dense);
// Writes them back to their places; values outside the set stay unchanged.
void scatter(const Support& support, std::span<const std::int32_t> dense,
             std::span<std::int32_t> values);

// ------------------------------------------------------------------ bytes
//
// The bytes of a set of indices that excludes another set, such as the misses of a prediction.
// Excluded indices take no room: positions among the remaining ones are coded. An empty set is one
// byte.
//
//   kEmpty    form u8
//   kBitmap   form u8, then a bit per position, the first in the lowest bit of the first byte
//   kRuns     form u8, gap parameter u8, run parameter u8, runs u32; then for every run of
//             neighbouring positions the gap before it and its length minus one, Rice coded
//
// Runs suit data whose zeros come in rows: a row of an embedding is there as a whole or not at all.
// For isolated positions they take a tenth more than the entropy. The encoder chooses the shortest
// form, so a set never exceeds encoded_support_limit() bytes.
//
// A Bloom filter takes 1.44 log2(1 / f) bits per index: 16 if one position in two hundred is set
// and false ones are to be a tenth of these. Runs take 10 and are exact. But filters and bitmaps
// can be or'ed directly, while runs must be decoded first.
//
// Decoding accepts any bytes. It fails for anything that no encoder writes, and its work is bounded
// by the tensor's length and the bytes.

inline constexpr std::uint64_t kMaxSupportLength = std::uint64_t{1} << 32;

// Both sets must be of the same tensor and disjoint. The tensor has at most kMaxSupportLength
// values.
std::vector<std::uint8_t> encode_support(const Support& chosen, const Support& excluded);

// Decodes the set; `excluded` must be the one it was encoded with.
base::Result<Support> decode_support(base::ByteView bytes, const Support& excluded);

// The largest encoding for so many positions that are not excluded.
std::size_t encoded_support_limit(std::size_t positions);

}  // namespace spillway::codec::sketch
