// SPDX-License-Identifier: Apache-2.0
//
// The two 16-bit floats, to a float and back: float16 is IEEE 754 binary16 (5 exponent bits, 10 of
// mantissa), bfloat16 the upper half of a float (8 and 7).
//
// To a float is exact; a NaN stays a NaN. From a float rounds to nearest, ties to even:
// values beyond the range become infinities, those below the normal range denormals, correctly
// rounded; signs of zeros are kept; every NaN becomes the one quiet NaN, so that results do not
// depend on which NaN a processor makes.
//
// The portable functions do not branch, and no floating-point operation of theirs depends on a
// condition: a loop over them becomes vector instructions on any 64-bit processor. Numbers are
// compared as signed integers because SSE2 has no other comparison. On architectures where every
// processor converts float16 itself, its instructions are used. codec/reference/half_precision.h
// has the same conversions written to be read; tests compare with it. Pure functions: any thread.
#pragma once

#include <bit>
#include <cstdint>

namespace spillway::collective {

inline constexpr std::uint16_t kFloat16Infinity = 0x7C00;
inline constexpr std::uint16_t kFloat16NaN = 0x7E00;
inline constexpr std::uint16_t kBfloat16NaN = 0x7FC0;

namespace half_float {

inline constexpr std::int32_t kMagnitude = 0x7FFFFFFF;
inline constexpr std::int32_t kInfinity = 0x7F800000;
inline constexpr std::int32_t kExponentStep = 1 << 23;
inline constexpr std::int32_t kRebias = (127 - 15) * kExponentStep;
inline constexpr std::int32_t kOneHalf = 126 * kExponentStep;
inline constexpr std::int32_t kFloat16AllOnes = 31 * kExponentStep;
inline constexpr std::int32_t kFloat16SmallestNormal = 113 * kExponentStep;  // 2^-14
inline constexpr std::int32_t kFloat16BeyondRange = 143 * kExponentStep;     // 2^16

// Drops `shift` low bits, rounding to nearest, ties to even. A carry into the exponent is right: it
// makes the next power of two, and at the top infinity.
constexpr std::uint32_t shift_rounded(std::uint32_t bits, unsigned shift) {
  const std::uint32_t odd = bits >> shift & 1U;
  return (bits + (1U << (shift - 1)) - 1 + odd) >> shift;
}

// All ones where the condition holds. Selecting by a mask never branches; ?: between floats
// sometimes does.
constexpr std::int32_t mask(bool condition) {
  return -static_cast<std::int32_t>(condition);
}

inline float float16_to_float_portably(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::int32_t shifted = (bits & 0x7FFF) << 13;
  const std::int32_t denormal = mask(shifted < kExponentStep);
  // Infinities and NaNs: the exponent of all ones goes on from 31 + 112 to 255.
  const std::int32_t special = mask(shifted >= kFloat16AllOnes);
  // A denormal is a count of steps of 2^-24. Under the exponent of 2^-14 its bits read as 2^-14
  // plus those steps, and taking 2^-14 off again is exact. The others have nothing taken off.
  const std::int32_t raised = shifted + kRebias + (special & kRebias) + (denormal & kExponentStep);
  const auto surplus = std::bit_cast<float>(denormal & kFloat16SmallestNormal);
  const float magnitude = std::bit_cast<float>(raised) - surplus;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

inline std::uint16_t float_to_float16_portably(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto magnitude = static_cast<std::int32_t>(bits & kMagnitude);
  const std::int32_t denormal = mask(magnitude < kFloat16SmallestNormal);
  // A denormal counts steps of 2^-24, which is the last digit of floats in [0.5, 1): adding 0.5
  // makes the addition itself round to such steps, ties to even. The others have nothing added.
  const auto surplus = std::bit_cast<float>(denormal & kOneHalf);
  const auto steps = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + surplus);
  const std::uint32_t normal = shift_rounded(steps - kRebias, 13);
  std::uint32_t half = denormal != 0 ? steps - kOneHalf : normal;
  half = magnitude >= kFloat16BeyondRange ? kFloat16Infinity : half;
  half |= bits >> 16 & 0x8000U;
  return static_cast<std::uint16_t>(magnitude > kInfinity ? kFloat16NaN : half);
}

}  // namespace half_float

inline float bfloat16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t float_to_bfloat16(float value) {
  using namespace half_float;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto magnitude = static_cast<std::int32_t>(bits & kMagnitude);
  const std::uint32_t rounded = shift_rounded(bits, 16);
  return static_cast<std::uint16_t>(magnitude > kInfinity ? kBfloat16NaN : rounded);
}

#ifdef __aarch64__
inline float float16_to_float(std::uint16_t bits) {
  return static_cast<float>(std::bit_cast<__fp16>(bits));
}

inline std::uint16_t float_to_float16(float value) {
  const auto half = std::bit_cast<std::uint16_t>(static_cast<__fp16>(value));
  return value != value ? kFloat16NaN : half;
}
#else
inline float float16_to_float(std::uint16_t bits) {
  return half_float::float16_to_float_portably(bits);
}

inline std::uint16_t float_to_float16(float value) {
  return half_float::float_to_float16_portably(value);
}
#endif

}  // namespace spillway::collective
