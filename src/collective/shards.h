// SPDX-License-Identifier: Apache-2.0
//
// How elements are shared out: a run of `count` elements into `parts` shards whose lengths differ
// by one at most, the longer ones first. Pieces cut a shard again, into equal runs but the last, so
// that one part of a shard can be added up while another is on its way.
//
//   count 10, parts 4:   [0 1 2] [3 4 5] [6 7] [8 9]
//
// Pure values; every rank computes the same.
#pragma once

#include <algorithm>
#include <cstddef>

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

inline std::size_t piece_count(std::size_t count, std::size_t most) {
  return (count + most - 1) / most;
}

inline Extent piece_of(const Extent& extent, std::size_t most, std::size_t index) {
  const std::size_t first = index * most;
  return {extent.first + first, std::min(most, extent.count - first)};
}

}  // namespace spillway::collective
