// SPDX-License-Identifier: Apache-2.0
#include "collective/exact/scratch_pool.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace spillway::collective {

namespace {

// Few sizes, so that a buffer of one operation fits the next.
std::size_t rounded(std::size_t bytes) {
  constexpr std::size_t kSmallest = 4096;
  const std::size_t step = std::max(std::bit_floor(bytes) / 8, kSmallest);
  return (bytes + step - 1) / step * step;
}

bool shorter(const ScratchPool::Buffer& buffer, std::size_t bytes) {
  return buffer.bytes < bytes;
}

}  // namespace

ScratchPool::Buffer ScratchPool::take(std::size_t bytes) {
  if (bytes == 0) {
    return {};
  }
  const auto fitting = std::lower_bound(kept_.begin(), kept_.end(), bytes, shorter);
  Buffer buffer;
  if (fitting != kept_.end()) {
    buffer = std::move(*fitting);
    kept_.erase(fitting);
    kept_bytes_ -= buffer.bytes;
  } else {
    buffer.bytes = rounded(bytes);
    buffer.data.reset(new std::uint8_t[buffer.bytes]);
  }
  used_bytes_ += buffer.bytes;
  return buffer;
}

void ScratchPool::give_back(Buffer buffer) {
  if (buffer.data == nullptr) {
    return;
  }
  used_bytes_ -= buffer.bytes;
  kept_bytes_ += buffer.bytes;
  const auto place = std::lower_bound(kept_.begin(), kept_.end(), buffer.bytes, shorter);
  kept_.insert(place, std::move(buffer));
  // The smallest go first: large buffers are the expensive ones.
  while (kept_bytes_ > max_kept_ && !kept_.empty()) {
    kept_bytes_ -= kept_.front().bytes;
    kept_.erase(kept_.begin());
  }
}

}  // namespace spillway::collective
