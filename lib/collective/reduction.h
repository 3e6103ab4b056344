// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of collectives: folds elements of several buffers into one.
//
// Results are the same bits on every machine, whatever its vectors are:
// - Sources are folded in pairs, in the order given: ((s0 + s1) + (s2 + s3)) + ..., a tree whose
// left
//   half is the largest power of two (left_of_tree()). Nothing is fused or reordered beyond that.
//   Sums of aligned runs of 2^k sources are nodes of that tree, so that any plan which adds such
//   runs first, and then their sums, ends with the same bits.
// - float16 and bfloat16 are added (and multiplied) as floats, and every result is rounded to its
//   type, to nearest, ties to even: a sum on its way to the next rank is no different from one
//   that stays. Only an average divides the last sum before that is rounded. Sums beyond the range
//   become infinities.
// - An element is NaN where any source is (min and max too), where infinities cancel or meet a zero
//   in a product. It is then always the positive quiet NaN without a payload, because processors
//   differ in which NaN an addition makes. That holds for a single source as well.
// - min and max keep the earlier of two equal elements, which tells +0 from -0.
// - Integer sums and products wrap around (two's complement). Integer averages truncate towards
//   zero, floating ones are divided and not multiplied with a reciprocal.
//
// The thread's floating-point mode must be the usual one: rounding to nearest, denormals kept.
//
// Buffers need no alignment. `target` may be exactly one of the sources; otherwise nothing
// overlaps. Pure functions: any thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collective/operation.h"
#include "collective/shards.h"

namespace spillway::collective {

inline constexpr std::size_t kMaxSources = 4096;
inline constexpr std::size_t kMaxAverageOver = std::size_t{1} << 24;  // up to here exact as a float

// Where the tree over `sources` (2 or more) divides: so many belong to its left half.
constexpr std::size_t left_of_tree(std::size_t sources) {
  return std::bit_floor(sources - 1);
}

// target[i] = the tree over sources[0][i], sources[1][i], ... for i < count elements.
// `average_over`, for kAverage only, divides the folded sum. Zero leaves the sum as it is, for
// partial results that go on to the next rank. One to kMaxSources sources.
void reduce(DataType type, ReduceOp op, std::span<const std::uint8_t* const> sources,
            std::size_t count, std::uint8_t* target, std::size_t average_over);

// Convert elements of a floating type (see is_floating) to floats and back. float64 is rounded to a
// float to nearest, ties to even; floats are rounded likewise to 16 bits. float32 is copied as it
// is. In the other types a NaN stays a NaN, and one that was rounded is the quiet NaN above. `from`
// and `to` do not overlap.
void convert_to_float(DataType type, const std::uint8_t* from, std::size_t count, float* to);
void convert_from_float(DataType type, const float* from, std::size_t count, std::uint8_t* to);

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
// processor converts float16 itself, its instructions are used. codec/reference/reference_codec.h
// has the same conversions written to be read; tests compare with it. Pure functions: any thread.

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

// The caller's elements of a piece as floats: in place if they are aligned floats, else converted.
// Lives as long as a calculation; the caller's memory outlives it.

class OwnValues {
 public:
  OwnValues(const Operation& operation, const Extent& extent) {
    const auto* const elements = static_cast<const std::uint8_t*>(operation.input) +
                                 extent.first * element_size(operation.type);
    const bool is_aligned = reinterpret_cast<std::uintptr_t>(elements) % alignof(float) == 0;
    if (operation.type == DataType::kFloat32 && is_aligned) {
      view_ = {reinterpret_cast<const float*>(elements), extent.count};
      return;
    }
    converted_.resize(extent.count);
    convert_to_float(operation.type, elements, extent.count, converted_.data());
    view_ = converted_;
  }
  OwnValues(const OwnValues&) = delete;
  OwnValues& operator=(const OwnValues&) = delete;

  std::span<const float> view() const { return view_; }

 private:
  std::vector<float> converted_;
  std::span<const float> view_;
};

// Adds each value of `part` to its counterpart in `sum`.
inline void add_values(std::span<const float> part, std::span<float> sum) {
  for (std::size_t i = 0; i < sum.size(); ++i) {
    sum[i] += part[i];
  }
}

}  // namespace spillway::collective
