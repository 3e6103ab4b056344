// SPDX-License-Identifier: Apache-2.0
#include "comm/block_allocator.h"

#include <iterator>

namespace spillway::runtime {

BlockAllocator::BlockAllocator(std::size_t bytes) {
  if (const std::size_t usable = bytes / kGrain * kGrain; usable > 0) {
    free_.emplace(0, usable);
  }
}

std::optional<std::size_t> BlockAllocator::take(std::size_t bytes) {
  if (bytes == 0 || bytes > SIZE_MAX - kGrain) {
    return std::nullopt;
  }
  const std::size_t wanted = (bytes + kGrain - 1) / kGrain * kGrain;
  for (auto hole = free_.begin(); hole != free_.end(); ++hole) {
    const auto [offset, length] = *hole;
    if (length < wanted) {
      continue;
    }
    free_.erase(hole);
    if (length > wanted) {
      free_.emplace(offset + wanted, length - wanted);
    }
    taken_.emplace(offset, wanted);
    taken_bytes_ += wanted;
    return offset;
  }
  return std::nullopt;
}

bool BlockAllocator::give_back(std::size_t offset) {
  const auto found = taken_.find(offset);
  if (found == taken_.end()) {
    return false;
  }
  std::size_t length = found->second;
  taken_.erase(found);
  taken_bytes_ -= length;
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + length) {
    length += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += length;
      return true;
    }
  }
  free_.emplace_hint(next, offset, length);
  return true;
}

}  // namespace spillway::runtime
