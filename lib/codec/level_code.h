// SPDX-License-Identifier: Apache-2.0
//
// The levels code, whose integers can be added without decoding (THC, NSDI'24): the choice of a
// code, one rank's row to levels, and sums of levels back to the mean of their ranks.
//
// A coordinate z of a rotated row, in units of a scale that all ranks share, becomes an integer.
//
//   [-limit, limit]  is mapped onto  [0, range];  z is clamped to it, then rounded at random to one
//   of the two neighbouring levels, so that the expected level is z.
//
// Levels are integers from 0 to `range`. For m ranks the sum of their levels gives the mean of the
// m clamped coordinates on average: (sum / m - range / 2) times 2 limit / range. This holds for any
// set of levels. Level 0 means -limit, not zero, so a missing rank is left out of m and never
// filled in.
//
// There are three ways to make a code:
//   uniform_level_code   every integer is a level
//   find_level_code      THC's tables: the 2^bits levels of a range with the least error
//   choose_level_code    the code that Spillway sends
//
// Tables are computed from + - * / alone (docs/adr/0003), so that every machine has the same.
//
// All ranks must rotate a row alike, or their sums would be meaningless: always kLevelRotations
// rounds, whatever the row looks like. Random bits are a pure function of (key, row, rank,
// coordinate), sixteen per coordinate. So ranks round independently, and a row rounds the same way
// on every machine.
//
// Codes and rounders are values; functions are stateless and touch nothing outside the given spans.
// Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/kernels.h"
#include "codec/rotation.h"

namespace spillway::codec {

// ------------------------------------------------------------------ codes

// Level indices have at most this many bits.
inline constexpr unsigned kMaxLevelBits = 8;
// Beyond this, the float error of a row exceeds the error of rounding it to levels.
inline constexpr unsigned kMaxLevelRange = (1U << 16) - 1;

struct LevelCode {
  unsigned range = 0;                 // the largest level, THC's g
  double clip_share = 0.0;            // share of N(0, 1) beyond the limit, THC's p
  float limit = 0.0F;                 // THC's T
  std::vector<std::uint16_t> levels;  // increasing; the first is 0, the last `range`

  bool is_uniform() const { return levels.size() == std::size_t{range} + 1; }
  friend bool operator==(const LevelCode&, const LevelCode&) = default;
};

// The limit that N(0, 1) exceeds with probability `clip_share`, both sides together; 0 < share < 1.
double clip_limit(double clip_share);

// All integers of 0..range are levels; 1 <= range <= kMaxLevelRange.
LevelCode uniform_level_code(unsigned range, double clip_share);

// The 2^bits levels from 0 to `range` with the least rounding error for N(0, 1). The exact search
// covers only sets that are their own mirror image, like THC's, so that a row and its negative are
// coded alike. 1 <= bits <= kMaxLevelBits, 2^bits - 1 <= range <= kMaxSearchRange.
inline constexpr unsigned kMaxSearchRange = 1023;
LevelCode find_level_code(unsigned bits, unsigned range, double clip_share);

// The code with the least error whose lanes (codec/lanes.h) are no wider than 2^bits levels from
// each of `contributors` ranks need. `bits` buys room on the wire, and the code uses all of it.
//
// The code is uniform: levels travel, not their indices, so leaving out a level saves nothing. Its
// range is the largest whose sums fit. Its clip share is the power of two with the least error.
// Rounding errors average out over ranks; clipping errors of similar gradients do not. 1 <= bits <=
// kMaxLevelBits, 1 <= contributors <= kMaxContributors (codec/lanes.h).
LevelCode choose_level_code(unsigned bits, unsigned contributors);

// Expected squared error for N(0, 1), relative to its energy.
struct LevelError {
  double rounding;  // of one rank; the mean of n independent ranks has an n-th of it
  double clipping;  // does not average out if ranks clip alike; error feedback repairs it

  double total() const { return rounding + clipping; }
};
LevelError expected_level_error(const LevelCode& code);

// ------------------------------------------------------------------ encoding: one rank's row to
// levels
//
// A rank rotates and measures its row, and rounds it once the ranks agree on a scale.

// One round is enough, because random rounding is unbiased for any row. The rotation only has to
// keep coordinates inside the limit. A sum of values with random signs has no heavier tails than a
// Gaussian, however spiky the row is.
inline constexpr unsigned kLevelRotations = 1;

// The result of rotate_for_levels(), besides the 2^log2_length coordinates of a row.
struct RotatedRow {
  float measure = 0.0F;  // root mean square; see codec/lanes.h
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

// ------------------------------------------------------------------ decoding: sums to means
// (level_code.cc)
//
// There are two steps, because chunks of a row may have sums of different ranks.
// decode_level_sums() turns a run of sums into means of its contributors. finish_level_row()
// rotates a row of such means back. A run without contributors is zero and counts as missing; the
// rest of its row compensates for it (docs/algorithms.md, "Missing coordinates").
//
// A rank's own levels decode like a sum of one contributor; error feedback subtracts that. Ranks
// that decode the same sums get the same bits.

// Means of rotated coordinates in units of scale * limit, from sums of `contributors` ranks; zeros
// without contributors. `sums` and `means` have equal lengths.
void decode_level_sums(const LevelCode& code, std::span<const std::uint32_t> sums,
                       unsigned contributors, std::span<float> means);

// The factor that turns a row's means into values, without the rotation: the row has `length`
// coordinates, of which `arrived` have contributors.
float level_row_factor(const LevelCode& code, float scale, std::size_t length, std::size_t arrived,
                       double weight);

// Turns the means of a whole row back into values, in place, times `weight`: 1 for the mean, the
// number of ranks for a sum. `scale` is the one that ranks rounded with. `arrived` is the number of
// coordinates with contributors. If it or the scale is 0, the row is zero. A scale of NaN gives
// NaN.
void finish_level_row(const Kernels& kernels, const LevelCode& code, float scale,
                      RotationId rotation, std::size_t arrived, double weight,
                      std::span<float> row);

}  // namespace spillway::codec
