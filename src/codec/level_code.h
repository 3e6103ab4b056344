// SPDX-License-Identifier: Apache-2.0
//
// The code of one number that can be added without being decoded (THC, NSDI'24): a coordinate z of
// a rotated row, in units of a scale that all ranks share, becomes an integer.
//
//   [-limit, limit]  is mapped onto  [0, range];  z is clamped to it, then rounded at random to one
//   of the two neighbouring levels, so that the level is z on average.
//
// Levels are integers from 0 to `range`. The sum of m ranks' levels is m times their mean, whatever
// levels were allowed: sum / m - range / 2, times 2 limit / range, is the mean of the m clamped
// coordinates on average. Level 0 is -limit and not zero, so a rank that is missing is left out of
// m, never filled in.
//
// Three ways to a code:
//   uniform_level_code   every integer is a level
//   find_level_code      THC's tables: the 2^bits levels of a range with the least error
//   choose_level_code    what Spillway sends
//
// Tables are computed from + - * / alone (docs/adr/0003), so that every machine has the same.
// A LevelCode is a value; any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace spillway::codec {

// Levels are numbered with at most this many bits.
inline constexpr unsigned kMaxLevelBits = 8;
// Beyond this, rounding a row to floats costs more than rounding it to levels.
inline constexpr unsigned kMaxLevelRange = (1U << 16) - 1;

struct LevelCode {
  unsigned range = 0;                 // the largest level, THC's g
  double clip_share = 0.0;            // of N(0, 1) that lies beyond the limit, THC's p
  float limit = 0.0F;                 // THC's T
  std::vector<std::uint16_t> levels;  // increasing; the first is 0, the last `range`

  bool is_uniform() const { return levels.size() == std::size_t{range} + 1; }
  friend bool operator==(const LevelCode&, const LevelCode&) = default;
};

// The limit that a share `clip_share` of N(0, 1) lies beyond, counting both sides; 0 < share < 1.
double clip_limit(double clip_share);

// All of 0..range, 1 <= range <= kMaxLevelRange.
LevelCode uniform_level_code(unsigned range, double clip_share);

// The 2^bits levels from 0 to `range` with the least error of rounding for N(0, 1), by an exact
// search among those that are their own mirror image, as THC's are: a row and its negative then
// code alike. 1 <= bits <= kMaxLevelBits, 2^bits - 1 <= range <= kMaxSearchRange.
inline constexpr unsigned kMaxSearchRange = 1023;
LevelCode find_level_code(unsigned bits, unsigned range, double clip_share);

// The code with the least error that needs no wider lanes (codec/lanes.h) than 2^bits levels of
// each of `contributors` ranks do: `bits` buys room on the wire, and the code makes the most of it.
//
// It is uniform: levels travel, not their numbers, so a level that is left out saves nothing. Its
// range is the largest whose sums fit, its clip share the power of two with the least error: what
// is rounded averages out over ranks, what is clipped of similar gradients does not.
// 1 <= bits <= kMaxLevelBits, 1 <= contributors <= kMaxContributors (codec/lanes.h).
LevelCode choose_level_code(unsigned bits, unsigned contributors);

// Expected squared error for N(0, 1), over its energy.
struct LevelError {
  double rounding;  // of one rank, at random: n independent ones have an n-th of it
  double clipping;  // the same whenever the same is clipped; error feedback repairs it

  double total() const { return rounding + clipping; }
};
LevelError expected_level_error(const LevelCode& code);

}  // namespace spillway::codec
