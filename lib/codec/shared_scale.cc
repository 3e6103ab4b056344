// SPDX-License-Identifier: Apache-2.0
#include "codec/shared_scale.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace spillway::codec {

bool is_special_scale(float scale) {
  return scale == 0.0F || std::isnan(scale);
}

// Among non-negative floats the larger has the larger bit pattern; NaN's exceeds all others.
float larger_scale(float left, float right) {
  return std::bit_cast<float>(
      std::max(std::bit_cast<std::uint32_t>(left), std::bit_cast<std::uint32_t>(right)));
}

float predict_scale(float last_largest, float headroom) {
  const float predicted = last_largest * headroom;
  return std::isfinite(predicted) ? predicted : 0.0F;
}

}  // namespace spillway::codec
