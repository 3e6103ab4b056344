// SPDX-License-Identifier: Apache-2.0
//
// One row into levels that can be added (codec/level_code.h): rotate and measure; then, once the
// ranks agree on a scale, round.
//
// All ranks rotate a row alike, or their sums would mean nothing: always kLevelRotations rounds,
// whatever a row looks like. One is enough, because rounding at random is unbiased for any row;
// what the rotation has to do is keep coordinates inside the limit, and a sum of values with random
// signs has no heavier tails than a Gaussian, however spiky the row is.
//
// Randomness is a pure function of (key, row, rank, coordinate): ranks round independently, and a
// row rounds the same way on every machine. Sixteen bits are drawn per coordinate.
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

// A row that was rotated by rotate_for_levels(): what goes with its 2^log2_length coordinates.
struct RotatedRow {
  float measure = 0.0F;  // root mean square; see codec/shared_scale.h
  int exponent = 0;      // coordinates are divided by 2^exponent; other than 0 only for extremes
};

// Rotates `values` (zeros are appended) into `rotated`, which has the row's whole length and lies
// elsewhere. Coordinates of a row that is not finite are zero.
RotatedRow rotate_for_levels(const Kernels& kernels, std::span<const float> values,
                             unsigned log2_length, RotationId rotation, std::span<float> rotated);

// Levels in a unit of the scale.
double steps_per_unit(const LevelCode& code);
// What coordinates of a rotated row are multiplied by to be steps from the middle level, at a
// shared scale that is not special.
float rounding_factor(double steps_per_unit, const RotatedRow& row, float scale,
                      unsigned log2_length);

// Rounds rows of one rank to the levels of one code. Copyable; shared by any number of threads.
class LevelRounder {
 public:
  LevelRounder(const LevelCode& code, unsigned rank, const Kernels& kernels = best_kernels());

  // Levels of a rotated row at the shared scale; returns how many coordinates were clipped. The
  // rotation names the row. A special scale (0, NaN) gives zeros, which mean nothing then.
  std::size_t round(std::span<const float> rotated, const RotatedRow& row, float scale,
                    RotationId rotation, std::span<std::uint32_t> levels) const;

 private:
  const Kernels* kernels_;
  float range_;
  double steps_per_unit_;
  unsigned rank_;
  std::vector<std::uint32_t> cells_;  // see Kernels::round_levels; empty for a uniform code
};

}  // namespace spillway::codec
