// SPDX-License-Identifier: Apache-2.0
//
// Shared by the kernel tables; private to them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "codec/kernels.h"

namespace spillway::codec {

// Combines lane sums in the fixed order: adds the upper half to the lower until one is left.
inline float combine_lanes(std::array<float, kAccumulators> sums) {
  for (std::size_t width = kAccumulators / 2; width > 0; width /= 2) {
    for (std::size_t lane = 0; lane < width; ++lane) {
      sums[lane] += sums[lane + width];
    }
  }
  return sums[0];
}

// The sign bits of four neighbouring coordinates as masks over their floats.
struct SignMasks {
  alignas(16) std::array<std::array<std::uint32_t, 4>, 16> nibble;
};

inline constexpr SignMasks kSignMasks = [] {
  SignMasks masks{};
  for (std::uint32_t bits = 0; bits < 16; ++bits) {
    for (std::uint32_t lane = 0; lane < 4; ++lane) {
      masks.nibble[bits][lane] = (bits >> lane & 1U) << 31;
    }
  }
  return masks;
}();

// The Highway tables that this CPU can run, fastest first. Exists only in builds with Highway.
std::vector<const Kernels*> highway_kernels();

}  // namespace spillway::codec
