// SPDX-License-Identifier: Apache-2.0
//
// One row to levels that can be added (codec/level_code.h): rotate and measure it; round it once
// the ranks agree on a scale.
//
// All ranks must rotate a row alike, or their sums would be meaningless: always kLevelRotations
// rounds, whatever the row looks like. One is enough, because random rounding is unbiased for any
// row. The rotation only has to keep coordinates inside the limit. A sum of values with random
// signs has no heavier tails than a Gaussian, however spiky the row is.
//
// Random bits are a pure function of (key, row, rank, coordinate): ranks round independently, and a
// row rounds the same way on every machine. Each coordinate uses sixteen bits.
//
// Stateless; any thread. Nothing outside the given spans is touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/kernels.h"
#include "codec/level_code.h"
#include "codec/rotation.h"

namespace spillway::codec {

inline constexpr unsigned kLevelRotations = 1;

// What rotate_for_levels() returns besides the 2^log2_length coordinates of a row.
struct RotatedRow {
  float measure = 0.0F;  // root mean square; see codec/shared_scale.h
  int exponent = 0;      // coordinates are divided by 2^exponent; non-zero only for extreme rows
};

// Rotates `values`, padded with zeros, into `rotated`, which has the row's whole length and must
// not overlap. If the row is not finite, its coordinates are zero.
RotatedRow rotate_for_levels(const Kernels& kernels, std::span<const float> values,
                             unsigned log2_length, RotationId rotation, std::span<float> rotated);

// Number of level steps per unit of the scale.
double steps_per_unit(const LevelCode& code);
// The factor that turns a rotated row's coordinates into steps from the middle level. The shared
// scale must not be special.
float rounding_factor(double steps_per_unit, const RotatedRow& row, float scale,
                      unsigned log2_length);

// Rounds one rank's rows to the levels of one code. Copyable; any number of threads may share one.
class LevelRounder {
 public:
  LevelRounder(const LevelCode& code, unsigned rank, const Kernels& kernels = best_kernels());

  // Rounds a rotated row at the shared scale and returns how many coordinates were clipped. The
  // rotation names the row. A special scale (0, NaN) gives zeros, which then carry no meaning.
  std::size_t round(std::span<const float> rotated, const RotatedRow& row, float scale,
                    RotationId rotation, std::span<std::uint32_t> levels) const;

 private:
  const Kernels* kernels_;
  float range_;
  double steps_per_unit_;
  unsigned rank_;
  std::vector<std::uint32_t> cells_;  // for Kernels::round_levels; empty if the code is uniform
};

}  // namespace spillway::codec
