// SPDX-License-Identifier: Apache-2.0
//
// From double to float without overflow: beyond the largest float a value stays there, where the
// plain conversion has no defined result. NaN passes. A pure function.
#pragma once

#include <algorithm>
#include <limits>

namespace spillway::codec::reference {

inline float saturated(double value) {
  constexpr double kMax = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(value, -kMax, kMax));
}

}  // namespace spillway::codec::reference
