// SPDX-License-Identifier: Apache-2.0
//
// Blocks of a range of bytes: who asks gets the lowest place that is free and long enough. Low
// places are used again and again, so they stay in caches, and what was never needed is never
// touched. Blocks are whole pages. Bounded by the range; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace spillway::runtime {

class BlockAllocator {
 public:
  static constexpr std::size_t kGrain = 4096;

  explicit BlockAllocator(std::size_t bytes);

  // The offset of a block of at least so many bytes; nothing if there is none, or for 0.
  std::optional<std::size_t> take(std::size_t bytes);
  // An offset that take() gave. False, and nothing changes, if it is none that is taken.
  bool give_back(std::size_t offset);

  std::size_t taken_bytes() const { return taken_bytes_; }

 private:
  std::map<std::size_t, std::size_t> free_;   // bytes by offset; neighbours are one
  std::map<std::size_t, std::size_t> taken_;  // the same
  std::size_t taken_bytes_ = 0;
};

}  // namespace spillway::runtime
