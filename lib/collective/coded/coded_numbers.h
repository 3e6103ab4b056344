// SPDX-License-Identifier: Apache-2.0
//
// Values as whole numbers of one unit that all ranks share, and sums of numbers as values. With a
// precision of p bits a number lies between -m and m, m = 2^(p-1) - 1, and the unit is the scale
// divided by m. Values beyond a predicted scale are clipped.
//
// Numbers are rounded at random, so that sums are right on average; or to the nearest, if the next
// step makes up for what rounding took away. Sums are added without loss, so values depend on the
// sum alone: the same bits at all ranks.
//
// Special scales (codec/shared_scale.h): 0 gives zeros throughout, NaN gives NaN throughout.
//
// Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collective/operation.h"

namespace spillway::collective {

// The largest magnitude of some values, NaN if one is not finite, and the sum of all magnitudes.
struct Magnitudes {
  float largest = 0.0F;
  double sum = 0.0;
};
Magnitudes measure_magnitudes(std::span<const float> values);

class NumberCode {
 public:
  NumberCode() = default;
  NumberCode(unsigned precision, float scale);

  std::int32_t largest_number() const { return most_; }
  double unit() const { return unit_; }  // 0 or NaN where the scale is special

  // Round up to BlockGrid::kMostValues at a time; return how many were clipped. `key` and `block`
  // name the draws.
  std::size_t round_at_random(std::span<const float> values, std::uint64_t key, std::uint32_t block,
                              std::span<std::int32_t> numbers) const;
  std::size_t round_to_nearest(std::span<const float> values,
                               std::span<std::int32_t> numbers) const;

  // Multiplies each number by the unit and `weight`.
  void values_of(std::span<const std::int32_t> numbers, double weight,
                 std::span<float> values) const;

 private:
  std::size_t round(std::span<const float> values, std::span<const std::uint32_t> dither,
                    std::span<std::int32_t> numbers) const;

  std::int32_t most_ = 1;
  float factor_ = 0.0F;  // for values raised by 2^raised_by_; 0: a special scale
  int raised_by_ = 0;    // so that the factor is a float where the unit is tiny
  double unit_ = 0.0;
};

}  // namespace spillway::collective
