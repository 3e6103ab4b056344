// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/half_precision.h"

#include <bit>
#include <cmath>

namespace spillway::codec::reference {
namespace {

constexpr std::uint32_t kFloatInfinity = 0x7F800000;
constexpr std::uint32_t kFloatMagnitude = 0x7FFFFFFF;

constexpr std::uint32_t kHalfInfinity = 0x7C00;
constexpr std::uint32_t kHalfQuiet = 0x0200;
constexpr std::uint32_t kHalfSmallestNormal = 0x38800000;  // 2^-14 as a float
constexpr std::uint32_t kHalfBeyondRange = 0x47800000;     // 2^16 as a float
constexpr std::uint32_t kRebias = (127U - 15U) << 23;

// Drops `shift` low bits, rounding to nearest, ties to even. A carry out of the mantissa correctly
// raises the exponent: all ones become the next power of two, or infinity at the top.
constexpr std::uint32_t shift_rounded(std::uint32_t bits, unsigned shift) {
  const std::uint32_t odd = bits >> shift & 1U;
  return (bits + (1U << (shift - 1)) - 1 + odd) >> shift;
}

std::uint32_t half_magnitude(std::uint32_t magnitude) {
  if (magnitude > kFloatInfinity) {
    const std::uint32_t payload = magnitude >> 13 & 0x3FF;
    return kHalfInfinity | (payload != 0 ? payload : kHalfQuiet);
  }
  if (magnitude >= kHalfBeyondRange) {
    return kHalfInfinity;
  }
  if (magnitude >= kHalfSmallestNormal) {
    return shift_rounded(magnitude - kRebias, 13);
  }
  // Denormals count steps of 2^-24, the last digit of floats in [0.5, 1). So adding 0.5 makes the
  // addition itself round to such steps, ties to even.
  const float stepped = std::bit_cast<float>(magnitude) + 0.5F;
  return std::bit_cast<std::uint32_t>(stepped) - std::bit_cast<std::uint32_t>(0.5F);
}

template <typename ToHalf>
void encode_halves(std::span<const float> tensor, base::MutableByteView bytes, ToHalf to_half) {
  base::ByteWriter writer(bytes);
  for (const float value : tensor) {
    writer.write<std::uint16_t>(to_half(value));
  }
}

template <typename FromHalf>
void decode_halves(base::ByteView bytes, std::span<float> out, FromHalf from_half) {
  base::ByteReader reader(bytes);
  for (float& value : out) {
    value = from_half(reader.read<std::uint16_t>());
  }
}

}  // namespace

std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & kFloatMagnitude) > kFloatInfinity) {
    const std::uint32_t top = bits >> 16;
    return static_cast<std::uint16_t>((top & 0x7F) != 0 ? top : top | 0x40);
  }
  return static_cast<std::uint16_t>(shift_rounded(bits, 16));
}

float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t float_to_fp16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits >> 16 & 0x8000) | half_magnitude(bits & kFloatMagnitude));
}

float fp16_to_float(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  const std::uint32_t magnitude = bits & 0x7FFFU;
  if (magnitude >= kHalfInfinity) {
    return std::bit_cast<float>(sign | kFloatInfinity | (magnitude & 0x3FF) << 13);
  }
  if (magnitude < 0x0400) {
    const float denormal = static_cast<float>(magnitude) * 0x1p-24F;  // exact
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(denormal));
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + kRebias));
}

void Bf16Codec::encode_into(std::span<const float> tensor, std::uint64_t /*seed*/,
                            base::MutableByteView bytes) const {
  encode_halves(tensor, bytes, float_to_bf16);
}

base::Status Bf16Codec::decode_from(base::ByteView bytes, std::uint64_t /*seed*/,
                                    std::span<float> out) const {
  decode_halves(bytes, out, bf16_to_float);
  return {};
}

void Fp16Codec::encode_into(std::span<const float> tensor, std::uint64_t /*seed*/,
                            base::MutableByteView bytes) const {
  encode_halves(tensor, bytes, float_to_fp16);
}

base::Status Fp16Codec::decode_from(base::ByteView bytes, std::uint64_t /*seed*/,
                                    std::span<float> out) const {
  decode_halves(bytes, out, fp16_to_float);
  return {};
}

}  // namespace spillway::codec::reference
