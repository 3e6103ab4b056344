// SPDX-License-Identifier: Apache-2.0
//
// Lossless coding of floats: exponents take few bits, everything else travels as it is. Every bit
// pattern comes back: NaNs with their payloads, infinities, negative zeros, denormal numbers.
//
// One rule serves float32, bfloat16 and float16. The upper 16 bits of a value are rotated left by
// one, so that the first byte holds the exponent (and a float16's first three mantissa bits). The
// second holds the rest of them, with the sign last. A float32's lower 16 bits follow unchanged.
// Byte i of all values of a block is its plane i.
//
//   code    blocks of kFloatBlockValues values; the last may have fewer
//   block   its planes, first to last: bytes u32, content
//   plane   as it is, if it has one byte per value; fewer bytes are a block of block_coder.h with
//           its own table. In plane 0, 127 is subtracted from every byte
//
// Any plane is coded that a sample shows to be uneven. So float32 values that hold bfloat16 numbers
// lose their zeros too, and so do tensors that are mostly zero. A sign costs a whole bit wherever
// it is, so it stays with the bits that nobody codes. Blocks decode alone.
//
// The code does not hold the number of values; its carrier knows it. The decoder trusts nothing: it
// stays inside its buffers, and its work is bounded by the number of values. Changed bytes may give
// other values, so carriers need checks of their own.
//
// Integers only, the same bytes on every machine. Coders keep scratch memory between calls, some
// bytes per value of a block. One thread each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "codec/entropy/block_coder.h"

namespace spillway::codec::entropy {

inline constexpr std::size_t kFloatBlockValues = std::size_t{1} << 17;

enum class FloatWidth : std::uint8_t {
  kTwo = 2,   // bfloat16, float16
  kFour = 4,  // float32
};

class FloatEncoder {
 public:
  explicit FloatEncoder(const RansKernels& kernels = best_rans_kernels()) : blocks_(kernels) {}

  // Encodes whole values. Returns the length of the code, or nothing if it has no room in `out`:
  // then the values do not shrink that far.
  std::optional<std::size_t> encode(base::ByteView values, FloatWidth width,
                                    base::MutableByteView out);

 private:
  bool write_plane(std::span<const std::int8_t> plane, base::ByteWriter& writer);

  BlockEncoder blocks_;
  std::vector<std::int8_t> planes_;
  std::vector<std::uint8_t> coded_;
};

class FloatDecoder {
 public:
  explicit FloatDecoder(const RansKernels& kernels = best_rans_kernels()) : blocks_(kernels) {}

  // Decodes exactly values.size() bytes of values, and ignores bytes behind their code. After an
  // error the content of `values` is undefined.
  base::Status decode(base::ByteView code, FloatWidth width, base::MutableByteView values);

 private:
  base::Status read_plane(base::ByteReader& reader, std::span<std::int8_t> plane);

  BlockDecoder blocks_;
  std::vector<std::int8_t> planes_;
};

}  // namespace spillway::codec::entropy
