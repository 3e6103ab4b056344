// SPDX-License-Identifier: Apache-2.0
//
// Numbers of varying widths (0 .. 32 bits) back to back, least significant bit first: the offsets
// and escapes beside the entropy coder's words.
//
// The creator of a writer must provide room for all bits plus kBitSlack bytes, which are written
// to; the writer does not check. A reader stays inside its bytes, yields zeros beyond their end and
// remembers that. Not for sharing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/check.h"

namespace spillway::codec::entropy {

inline constexpr std::size_t kBitSlack = 8;

class BitWriter {
 public:
  explicit BitWriter(std::uint8_t* to) : begin_(to), to_(to) {}

  void put(std::uint32_t value, unsigned width) {
    SPILLWAY_DCHECK(width == 32 || value >> width == 0);
    pending_ |= std::uint64_t{value} << bits_;
    bits_ += width;
    base::store_le(to_, pending_);
    to_ += bits_ / 8;
    pending_ >>= bits_ & ~7U;
    bits_ &= 7U;
  }

  // Bytes written; the last one is padded with zero bits.
  std::size_t bytes() const { return static_cast<std::size_t>(to_ - begin_) + (bits_ > 0 ? 1 : 0); }

 private:
  std::uint8_t* begin_;
  std::uint8_t* to_;
  std::uint64_t pending_ = 0;
  unsigned bits_ = 0;  // below 8 between calls
};

class BitReader {
 public:
  explicit BitReader(base::ByteView bytes) : bytes_(bytes) {}

  std::uint32_t get(unsigned width) {
    const std::size_t byte = position_ / 8;
    const std::uint64_t loaded =
        byte + 8 <= bytes_.size() ? base::load_le<std::uint64_t>(bytes_.data() + byte) : tail(byte);
    const std::uint64_t value = loaded >> (position_ % 8) & ((std::uint64_t{1} << width) - 1);
    position_ += width;
    return static_cast<std::uint32_t>(value);
  }

  // True if exactly these bytes were read and the last one's padding is zero.
  bool is_at_end() {
    if ((position_ + 7) / 8 != bytes_.size()) {
      return false;
    }
    return position_ % 8 == 0 || bytes_.back() >> (position_ % 8) == 0;
  }

 private:
  std::uint64_t tail(std::size_t byte) const {
    std::uint64_t loaded = 0;
    for (std::size_t i = byte; i < bytes_.size() && i < byte + 8; ++i) {
      loaded |= std::uint64_t{bytes_[i]} << (8 * (i - byte));
    }
    return loaded;
  }

  base::ByteView bytes_;
  std::size_t position_ = 0;  // in bits; beyond the end once zeros were yielded
};

}  // namespace spillway::codec::entropy
