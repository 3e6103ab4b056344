// SPDX-License-Identifier: Apache-2.0
//
// How elements are divided: a run of `count` elements into `parts` shards whose lengths differ by
// one at most, the longer ones first. Pieces cut a shard again, into equal runs except the last, so
// that one part of a shard can be added up while another is in flight.
//
//   count 10, parts 4:   [0 1 2] [3 4 5] [6 7] [8 9]
//
// Shares divide unevenly: each part gets so many 65,536ths of the whole, in whole numbers, so that
// all processors cut alike. A part may get nothing.
//
// Pure values; every rank computes the same.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace spillway::collective {

struct Extent {
  std::size_t first = 0;
  std::size_t count = 0;
};

inline Extent shard_of(std::size_t count, std::size_t parts, std::size_t index) {
  const std::size_t shortest = count / parts;
  const std::size_t longer = count % parts;
  return {index * shortest + std::min(index, longer), shortest + (index < longer ? 1 : 0)};
}

class Shares {
 public:
  static constexpr std::uint32_t kWhole = 1U << 16;

  // Equal shares, for any number of parts.
  Shares() = default;
  // The weight of each part; together kWhole.
  explicit Shares(std::span<const std::uint32_t> weights) {
    for (const std::uint32_t weight : weights) {
      ends_.push_back(weight + (ends_.empty() ? 0 : ends_.back()));
    }
  }

  bool are_equal() const { return ends_.empty(); }
  std::uint32_t begin_of(std::size_t index) const { return index == 0 ? 0 : ends_[index - 1]; }
  std::uint32_t end_of(std::size_t index) const { return ends_[index]; }

  friend bool operator==(const Shares&, const Shares&) = default;

 private:
  std::vector<std::uint32_t> ends_;  // where each part ends; empty: equal shares
};

inline Extent shard_of(std::size_t count, std::size_t parts, std::size_t index,
                       const Shares& shares) {
  if (shares.are_equal()) {
    return shard_of(count, parts, index);
  }
  // In two halves: the product may not fit in a word.
  const auto until = [count](std::size_t share) {
    return count / Shares::kWhole * share + count % Shares::kWhole * share / Shares::kWhole;
  };
  const std::size_t first = until(shares.begin_of(index));
  return {first, until(shares.end_of(index)) - first};
}

inline std::size_t longest_shard(std::size_t count, std::size_t parts, const Shares& shares) {
  std::size_t longest = 0;
  for (std::size_t index = 0; index < parts; ++index) {
    longest = std::max(longest, shard_of(count, parts, index, shares).count);
  }
  return longest;
}

inline std::size_t piece_count(std::size_t count, std::size_t most) {
  return (count + most - 1) / most;
}

inline Extent piece_of(const Extent& extent, std::size_t most, std::size_t index) {
  const std::size_t first = index * most;
  return {extent.first + first, std::min(most, extent.count - first)};
}

}  // namespace spillway::collective
