// SPDX-License-Identifier: Apache-2.0
//
// The two 16-bit floats, bf16 (8 exponent bits, 7 mantissa bits) and IEEE 754 binary16 (5 and 10):
// conversions of single numbers, and codecs with two bytes per coordinate. The seed is unused.
//
// Both round to nearest, ties to even, on any hardware. Values beyond the range become infinities.
// Results below the normal range are correctly rounded denormals; signs of zeros are kept. A NaN
// keeps the payload bits that fit and becomes a quiet NaN if none would be left. Conversion back is
// exact. Pure functions: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "codec/reference/reference_codec.h"

namespace spillway::codec::reference {

std::uint16_t float_to_bf16(float value);
float bf16_to_float(std::uint16_t bits);

std::uint16_t float_to_fp16(float value);
float fp16_to_float(std::uint16_t bits);

class Bf16Codec final : public ReferenceCodec {
 public:
  std::string_view name() const override { return "bf16"; }
  std::size_t encoded_bytes(std::size_t count) const override { return 2 * count; }

 private:
  void encode_into(std::span<const float> tensor, std::uint64_t seed,
                   base::MutableByteView bytes) const override;
  base::Status decode_from(base::ByteView bytes, std::uint64_t seed,
                           std::span<float> out) const override;
};

class Fp16Codec final : public ReferenceCodec {
 public:
  std::string_view name() const override { return "fp16"; }
  std::size_t encoded_bytes(std::size_t count) const override { return 2 * count; }

 private:
  void encode_into(std::span<const float> tensor, std::uint64_t seed,
                   base::MutableByteView bytes) const override;
  base::Status decode_from(base::ByteView bytes, std::uint64_t seed,
                           std::span<float> out) const override;
};

}  // namespace spillway::codec::reference
