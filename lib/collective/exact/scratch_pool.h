// SPDX-License-Identifier: Apache-2.0
//
// Memory that operations need for a while, used again: fresh memory of this size would cost a page
// fault per 4 KiB. Keeps what was given back, up to a limit; beyond it the smallest buffers are
// freed first. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace spillway::collective {

class ScratchPool {
 public:
  struct Buffer {
    std::unique_ptr<std::uint8_t[]> data;
    std::size_t bytes = 0;
  };

  explicit ScratchPool(std::size_t max_kept) : max_kept_(max_kept) {}

  // At least `bytes`, contents unknown; empty for 0.
  Buffer take(std::size_t bytes);
  void give_back(Buffer buffer);

  std::size_t kept_bytes() const { return kept_bytes_; }
  std::size_t used_bytes() const { return used_bytes_; }

 private:
  std::size_t max_kept_;
  std::size_t kept_bytes_ = 0;
  std::size_t used_bytes_ = 0;
  std::vector<Buffer> kept_;  // by size
};

}  // namespace spillway::collective
