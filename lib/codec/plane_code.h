// SPDX-License-Identifier: Apache-2.0
//
// The embedded bit-plane code of one number. It defines what Spillway's planes mean.
//
// The coordinates of a rotated row, divided by its scale, look like draws z from N(0, 1). Each z
// becomes a sign and a magnitude code, most significant bit first. ANY prefix is close to the best
// quantiser of that length:
//
//   plane 0        the sign
//   planes 1..15   the leading bits of u(|z|), where u is a concave, piecewise linear compander:
//                  breakpoints wherever half of the remaining code space is used up
//   planes 16..31  where inside its 16-bit cell the number lies, linearly
//
//   u        0      1/2     3/4      7/8      15/16   31/32    1
//   |z|      0    1.125  1.9375  2.59375   3.1875  3.8125    6
//
// The breakpoints follow the cube-root rule for N(0, 1) (handbook: companding with variance 3),
// rounded so that cell bounds are sums of a few bits. Decoding is then exact float arithmetic on
// every machine. Because u is concave, it is a minimum of six lines, and its inverse is a maximum
// of six lines: no table and no branch per coordinate.
//
// A packet's precision (1 to 32 planes) is where the sender stops; a trimmed packet is one that a
// switch stopped earlier. Decoding b planes gives the conditional mean of z in its cell. An
// unbiased estimate divides that by (1 - D_b), because E[z * mean] is 1 - D_b.
//
// EDEN is the best possible code for each length, but cannot be trimmed. Relative to it the error
// is 1.00, 1.04, 1.04, 1.04 times as large at 1, 2, 3, 4 planes; `spillway bench codec` measures
// it.
#pragma once

#include <array>
#include <cstdint>

namespace spillway::codec {

// Planes of one coordinate: a sign, 15 companded bits, 16 linear bits.
inline constexpr unsigned kMaxPlanes = 32;
inline constexpr unsigned kCompandedPlanes = 16;
// Up to this many planes decode through a table of conditional means. Beyond it a cell is so narrow
// that its middle is its mean (relative error below 1e-6).
inline constexpr unsigned kTablePlanes = 8;
// The largest magnitude, in units of the row's scale.
inline constexpr float kMaxMagnitude = 6.0F;

// One line of the compander. `code` is the 15-bit magnitude code.
//   encode: code = |z| * code_per_unit + code_offset      (the minimum over all lines)
//   decode: |z|  = code * unit_per_code + unit_offset     (the maximum over all lines, exact)
struct CompanderLine {
  float first_code;
  float code_per_unit;
  float code_offset;
  float unit_per_code;
  float unit_offset;
};

inline constexpr unsigned kCompanderLines = 6;

namespace internal {

inline constexpr std::array<double, kCompanderLines + 1> kBreakCodes = {
    0.0, 16384.0, 24576.0, 28672.0, 30720.0, 31744.0, 32768.0};
inline constexpr std::array<double, kCompanderLines + 1> kBreakUnits = {
    0.0, 1.125, 1.9375, 2.59375, 3.1875, 3.8125, 6.0};

constexpr std::array<CompanderLine, kCompanderLines> make_compander() {
  std::array<CompanderLine, kCompanderLines> lines{};
  for (unsigned i = 0; i < kCompanderLines; ++i) {
    const double codes = kBreakCodes[i + 1] - kBreakCodes[i];
    const double units = kBreakUnits[i + 1] - kBreakUnits[i];
    const double slope = codes / units;
    lines[i] = {static_cast<float>(kBreakCodes[i]), static_cast<float>(slope),
                static_cast<float>(kBreakCodes[i] - slope * kBreakUnits[i]),
                static_cast<float>(units / codes),
                static_cast<float>(kBreakUnits[i] - units / codes * kBreakCodes[i])};
  }
  return lines;
}

}  // namespace internal

inline constexpr std::array<CompanderLine, kCompanderLines> kCompander = internal::make_compander();
inline constexpr float kMaxCode = 32767.0F;

// How an encoder evaluates the compander, to the last rounding, in units where |z| = |y| / scale.
// The first three lines are one sum: code = |y| s2 + min(|y|, t1) d1 + min(|y|, t2) d2, with fused
// multiply-adds from left to right. The result is the minimum of that, the three outer lines (also
// fused) and kMaxCode. Only one coordinate in a hundred lies beyond the inner lines.
inline constexpr unsigned kInnerLines = 3;
static_assert(kInnerLines == 3, "ScaledCompander spells the inner sum out");

// The compander for one row's scale.
struct ScaledCompander {
  explicit ScaledCompander(float inverse_scale)
      : inner_slope(kCompander[2].code_per_unit * inverse_scale) {
    for (unsigned i = 0; i < kInnerLines - 1; ++i) {
      bend[i] = (kCompander[i].code_per_unit - kCompander[i + 1].code_per_unit) * inverse_scale;
      bend_at[i] = static_cast<float>(internal::kBreakUnits[i + 1]) / inverse_scale;
    }
    for (unsigned i = kInnerLines; i < kCompanderLines; ++i) {
      outer_slope[i - kInnerLines] = kCompander[i].code_per_unit * inverse_scale;
    }
  }

  float inner_slope;
  std::array<float, kInnerLines - 1> bend{};
  std::array<float, kInnerLines - 1> bend_at{};
  std::array<float, kCompanderLines - kInnerLines> outer_slope{};  // the offsets are kCompander's
};

// How a decoder trades bias for error.
enum class Estimate : std::uint8_t {
  kUnbiased,      // right on average: for sums over workers (the default)
  kMinimumError,  // least squared error, shrunk towards zero: for one reader, or error feedback
};

// The values of all 2^kTablePlanes prefixes of up to kTablePlanes planes. The index is the first
// eight planes as a byte: the sign in the top bit, absent planes zero.
using LevelTable = std::array<float, 1U << kTablePlanes>;
const LevelTable& level_table(unsigned planes, Estimate estimate);

// The probability that |z| of a N(0, 1) draw falls into a magnitude cell of kTablePlanes planes.
double magnitude_cell_mass(unsigned cell);

// Expected squared error of decoding `planes` planes of N(0, 1) draws, relative to their energy.
double expected_nmse(unsigned planes, Estimate estimate);

}  // namespace spillway::codec
