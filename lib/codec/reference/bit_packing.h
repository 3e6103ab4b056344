// SPDX-License-Identifier: Apache-2.0
//
// Numbers of a fixed width in bits, back to back in a byte string, least significant bit first.
// Number i of width w begins at bit i * w; bit j of the string is bit j % 8 of byte j / 8.
//
// Neither cursor leaves its span: a reader yields zero bits beyond the end, a writer drops them. So
// a caller that has checked the length once needs no check per number. The unused bits of the last
// byte are written as zero and ignored when read. Widths are 1..32. Not for sharing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/check.h"

namespace spillway::codec::reference {

constexpr std::size_t packed_bytes(std::size_t count, unsigned width) {
  return count / 8 * width + (count % 8 * width + 7) / 8;  // count * width might overflow
}

class BitWriter {
 public:
  explicit BitWriter(base::MutableByteView bytes) : bytes_(bytes) {}

  void put(std::uint32_t value, unsigned width) {
    SPILLWAY_DCHECK(width >= 1 && width <= 32);
    SPILLWAY_DCHECK(width == 32 || value >> width == 0);
    pending_ |= std::uint64_t{value} << pending_bits_;
    pending_bits_ += width;
    while (pending_bits_ >= 8) {
      emit_byte();
      pending_bits_ -= 8;
    }
  }

  // Writes the last, partly filled byte; the next number then begins a new byte.
  void flush() {
    if (pending_bits_ > 0) {
      emit_byte();
      pending_bits_ = 0;
    }
  }

 private:
  void emit_byte() {
    if (position_ < bytes_.size()) {
      bytes_[position_++] = static_cast<std::uint8_t>(pending_);
    }
    pending_ >>= 8;
  }

  base::MutableByteView bytes_;
  std::size_t position_ = 0;
  std::uint64_t pending_ = 0;
  unsigned pending_bits_ = 0;  // below 8 between calls
};

class BitReader {
 public:
  explicit BitReader(base::ByteView bytes) : bytes_(bytes) {}

  std::uint32_t get(unsigned width) {
    SPILLWAY_DCHECK(width >= 1 && width <= 32);
    while (pending_bits_ < width) {
      pending_ |= std::uint64_t{next_byte()} << pending_bits_;
      pending_bits_ += 8;
    }
    const std::uint64_t mask = (std::uint64_t{1} << width) - 1;
    const auto value = static_cast<std::uint32_t>(pending_ & mask);
    pending_ >>= width;
    pending_bits_ -= width;
    return value;
  }

 private:
  std::uint8_t next_byte() { return position_ < bytes_.size() ? bytes_[position_++] : 0; }

  base::ByteView bytes_;
  std::size_t position_ = 0;
  std::uint64_t pending_ = 0;
  unsigned pending_bits_ = 0;
};

}  // namespace spillway::codec::reference
