// SPDX-License-Identifier: Apache-2.0
//
// Allocates blocks of whole pages from a range of bytes. A request gets the lowest free place that
// is large enough: low offsets are reused and stay in caches, and pages that were never needed are
// never touched. One thread.
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

  // The offset of a block of at least `bytes`; nullopt if no free block is large enough, or for 0.
  std::optional<std::size_t> take(std::size_t bytes);
  // Frees the block at an offset from take(). Returns false and changes nothing for any other
  // offset.
  bool give_back(std::size_t offset);

  std::size_t taken_bytes() const { return taken_bytes_; }

 private:
  std::map<std::size_t, std::size_t> free_;   // bytes by offset; adjacent blocks are merged
  std::map<std::size_t, std::size_t> taken_;  // bytes by offset
  std::size_t taken_bytes_ = 0;
};

}  // namespace spillway::runtime
