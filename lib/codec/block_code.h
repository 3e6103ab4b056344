// SPDX-License-Identifier: Apache-2.0
//
// Block-scaled integers in 32-bit lanes (SwitchML, NSDI'21), for nearly exact sums.
//
// A block (a row without rotation) shares one power of two, the smallest above the largest
// magnitude of any rank. Each rank reports its own largest magnitude (codec/lanes.h). A
// value becomes the nearest multiple of that power / 2^precision, shifted to be positive:
//
//   number = round(value * 2^precision / power) + 2^precision,  0 <= number <= 2^(precision + 1)
//
// `precision` is the largest for which the numbers of all contributors add up within 32 bits: 30
// for one rank, 27 for 8, 23 for 128. Numbers are linear in values, so a sum of m of them is off by
// at most m half steps. With powers of two only the last step rounds.
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

// The largest magnitude of a block: 0 if all values are zero, NaN if one is not finite.
float measure_block(std::span<const float> values);

// Encodes a block at the shared scale. Returns how many values exceeded it and were clamped, which
// happens only with a predicted scale. A special scale (0, NaN) gives the middle everywhere.
std::size_t encode_block(const BlockCode& code, std::span<const float> values, float scale,
                         std::span<std::uint32_t> numbers);

// Decodes sums of the numbers of `contributors` ranks to their mean times `weight`. Values are zero
// without contributors or for scale 0, and NaN for scale NaN.
void decode_block_sums(const BlockCode& code, std::span<const std::uint32_t> sums, float scale,
                       unsigned contributors, double weight, std::span<float> values);

}  // namespace spillway::codec
