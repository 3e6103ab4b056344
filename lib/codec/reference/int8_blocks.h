// SPDX-License-Identifier: Apache-2.0
//
// Block-wise int8: one fp32 scale per 256 coordinates, the largest magnitude over 127, and
// stochastic rounding to multiples of it (the quantiser of QSGD, Alistarh et al., NIPS'17, with the
// maximum norm and 127 levels). 8.125 bits per coordinate in full blocks.
//
// A coordinate x becomes floor(x / scale + u) with u uniform in [0, 1), drawn from the shared seed
// (the decoder does not need it). That is unbiased over seeds to 2^-32 of a step, and never off by
// a whole step.
//
//   block on the wire    scale as fp32, then one int8 in -127 .. 127 per coordinate
//
// Edges: a block of zeros decodes to zeros. The bound above also holds for denormals and the
// largest floats. A block with a NaN or an infinity decodes to all NaN. The code -128 and a
// negative or infinite scale are never sent, so decode calls them malformed. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "codec/reference/reference_codec.h"

namespace spillway::codec::reference {

inline constexpr std::size_t kInt8Block = 256;

class Int8BlockCodec final : public ReferenceCodec {
 public:
  std::string_view name() const override { return "int8"; }
  std::size_t encoded_bytes(std::size_t count) const override;

 private:
  void encode_into(std::span<const float> tensor, std::uint64_t seed,
                   base::MutableByteView bytes) const override;
  base::Status decode_from(base::ByteView bytes, std::uint64_t seed,
                           std::span<float> out) const override;
};

}  // namespace spillway::codec::reference
