// SPDX-License-Identifier: Apache-2.0
//
// Rows with extreme values are divided by the power of two of their largest value, before they can
// be squared, summed and rotated in floats.
//
// Pure functions; any thread.
#pragma once

#include <cmath>
#include <span>

namespace spillway::codec {

// True if a sum of squares neither overflowed nor lost small terms to denormals.
inline bool is_safe_energy(float sum_squares) {
  return sum_squares >= 1e-24F && sum_squares <= 1e+30F;
}

inline bool all_finite(std::span<const float> values) {
  for (const float value : values) {
    if (!std::isfinite(value)) {
      return false;
    }
  }
  return true;
}

inline float max_abs(std::span<const float> values) {
  float largest = 0.0F;
  for (const float value : values) {
    largest = std::fabs(value) > largest ? std::fabs(value) : largest;
  }
  return largest;
}

inline void scale_by_power_of_two(std::span<float> values, int exponent) {
  for (float& value : values) {
    value = std::ldexp(value, exponent);
  }
}

}  // namespace spillway::codec
