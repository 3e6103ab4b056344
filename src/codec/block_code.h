// SPDX-License-Identifier: Apache-2.0
//
// Block-scaled integers in lanes of 32 bits (SwitchML, NSDI'21): for sums that lose next to
// nothing.
//
// A block (a row, without rotation) shares one power of two that no value of any rank reaches: the
// smallest above the ranks' largest magnitude, which is what each of them tells
// (codec/shared_scale.h). A value becomes the nearest multiple of that power / 2^precision, shifted
// to be positive:
//
//   number = round(value * 2^precision / power) + 2^precision,  0 <= number <= 2^(precision + 1)
//
// `precision` is the largest for which the numbers of all contributors still add up within 32 bits:
// 30 for one rank, 27 for 8, 23 for 128. Numbers are linear in values, so a sum of m of them is off
// by at most m half steps. Powers of two make every step but the last rounding exact.
//
// Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/lanes.h"

namespace spillway::codec {

struct BlockCode {
  unsigned precision;

  // 1 <= contributors <= kMaxContributors.
  static BlockCode for_contributors(unsigned contributors);

  std::uint32_t middle() const { return std::uint32_t{1} << precision; }
  std::uint32_t largest() const { return std::uint32_t{2} << precision; }
};

// The largest magnitude of a block: 0 for one of zeros, NaN if it is not finite.
float measure_block(std::span<const float> values);

// Numbers of a block at the shared scale; returns how many values were beyond it and clamped, which
// only a predicted scale allows. A special scale (0, NaN) gives the middle throughout.
std::size_t encode_block(const BlockCode& code, std::span<const float> values, float scale,
                         std::span<std::uint32_t> numbers);

// The mean of `contributors` ranks times `weight`, from sums of their numbers; zeros where there
// are none or the scale is 0, NaN where the scale is NaN.
void decode_block_sums(const BlockCode& code, std::span<const std::uint32_t> sums, float scale,
                       unsigned contributors, double weight, std::span<float> values);

}  // namespace spillway::codec
