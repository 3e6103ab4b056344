// SPDX-License-Identifier: Apache-2.0
//
// Shared by the reference codecs: rows of 2^15, as in the papers; one random draw per coordinate,
// the same at both ends; conversion to float without overflow; and numbers of a fixed width in
// bits.
//
// Header-only. CoordinateDraws and the bit cursors belong to one thread; all else is stateless.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/bytes.h"
#include "base/check.h"
#include "base/random.h"
#include "codec/row_codec.h"

namespace spillway::codec::reference {

// Converts a double to float and clamps it to the largest float; the plain conversion is undefined
// beyond that. NaN stays NaN.
inline float saturated(double value) {
  constexpr double kMax = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(value, -kMax, kMax));
}

// The draw of coordinate i is word i % 4 of the counter generator's block {i / 4 (64 bits), 0,
// domain} under the tensor's seed. The domain keeps codecs with the same seed independent of each
// other and of the rotation's signs. Any order of coordinates works; ascending order computes each
// block once.
class CoordinateDraws {
 public:
  CoordinateDraws(std::uint64_t seed, std::uint32_t domain) : seed_(seed), domain_(domain) {
    load_block(0);
  }

  // Uniform in [0, 1) with 32 bits.
  double unit(std::size_t coordinate) {
    if (coordinate / 4 != block_index_) {
      load_block(coordinate / 4);
    }
    return static_cast<double>(block_[coordinate % 4]) * 0x1p-32;
  }

 private:
  void load_block(std::uint64_t index) {
    block_index_ = index;
    block_ = base::random_block(seed_, {static_cast<std::uint32_t>(index),
                                        static_cast<std::uint32_t>(index >> 32), 0, domain_});
  }

  std::uint64_t seed_;
  std::uint32_t domain_;
  std::uint64_t block_index_ = 0;
  base::RandomBlock block_{};
};

inline RowLayout reference_rows(std::size_t tensor_length) {
  return RowLayout(tensor_length, kMaxRowLog2);
}

// The length of all rows with their padding.
inline std::size_t padded_length(const RowLayout& rows) {
  if (rows.row_count() == 0) {
    return 0;
  }
  const Row last = rows.row(rows.row_count() - 1);
  return last.offset + last.length();
}

// ------------------------------------------------------------------ bit packing
//
// Numbers of a fixed width in bits, back to back in a byte string, least significant bit first.
// Number i of width w begins at bit i * w; bit j of the string is bit j % 8 of byte j / 8.
//
// Neither cursor leaves its span: a reader yields zero bits beyond the end, a writer drops them. So
// a caller that has checked the length once needs no check per number. The unused bits of the last
// byte are written as zero and ignored when read. Widths are 1..32.

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
