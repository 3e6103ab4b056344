// SPDX-License-Identifier: Apache-2.0
//
// A set of indices of a tensor, one bit each: where values are not zero, where they are expected
// not to be, which numbers of a message did not arrive.
//
// Bit i % 64 of word i / 64 says whether index i is in the set; bits beyond the length are zero.
// Sets that are combined have the same length: the caller sees to that.
//
// A plain value; shared by any number of threads while nobody changes it.
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
  // Of a tensor of that length: no index at all.
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
  // For whoever computes 64 at a time; bits beyond the length must stay zero.
  std::span<std::uint64_t> words() { return words_; }
  // The bits of a word that stand for indices: all but in the last one.
  std::uint64_t valid_bits(std::size_t word) const;

  Support& operator|=(const Support& other);
  Support without(const Support& other) const;
  // Whether they have an index in common.
  bool meets(const Support& other) const;
  friend bool operator==(const Support&, const Support&) = default;

  // visit(index), ascending.
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

// The values inside the set, one after another. `dense` has room for count() of them.
void gather(const Support& support, std::span<const std::int32_t> values,
            std::span<std::int32_t> dense);
// Back to their places. What is outside the set is not touched.
void scatter(const Support& support, std::span<const std::int32_t> dense,
             std::span<std::int32_t> values);

}  // namespace spillway::codec::sketch
