// SPDX-License-Identifier: Apache-2.0
//
// A set of a tensor's indices, one bit each: non-zero values, values predicted to be non-zero, or
// numbers of a message that did not arrive.
//
// Bit i % 64 of word i / 64 tells whether index i is in the set; bits beyond the length are zero.
// The caller ensures that combined sets have the same length.
//
// A plain value; any number of threads may share it while it does not change.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"

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

}  // namespace spillway::codec::sketch
