// SPDX-License-Identifier: Apache-2.0
//
// A code whose integers can be added without decoding (THC, NSDI'24). A coordinate z of a rotated
// row, in units of a scale that all ranks share, becomes an integer.
//
//   [-limit, limit]  is mapped onto  [0, range];  z is clamped to it, then rounded at random to one
//   of the two neighbouring levels, so that the expected level is z.
//
// Levels are integers from 0 to `range`. For m ranks the sum of their levels gives the mean of the
// m clamped coordinates on average: (sum / m - range / 2) times 2 limit / range. This holds for any
// set of levels. Level 0 means -limit, not zero, so a missing rank is left out of m and never
// filled in.
//
// Three ways to a code:
//   uniform_level_code   every integer is a level
//   find_level_code      THC's tables: the 2^bits levels of a range with the least error
//   choose_level_code    the code that Spillway sends
//
// Tables are computed from + - * / alone (docs/adr/0003), so that every machine has the same. A
// LevelCode is a value; any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace spillway::codec {

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

}  // namespace spillway::codec
