// SPDX-License-Identifier: Apache-2.0
//
// What every code there is makes of one gradient: bits per value against error, and how fast it is
// on one core. What `spillway codec tour` shows of a user's own gradient.
//
// Bits are those that one rank sends of its own values: planes with the headers of their packets,
// thc and blocks in lanes that have room for sums of eight ranks, the others as messages. Error is
// squared error over energy, of one message. Throughput counts the gradient's bytes, 4 per value;
// that of planes includes making packets and their tags.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "bench/codec/speed.h"
#include "bench/progress.h"

namespace spillway::bench {

struct RateInput {
  std::span<const float> gradient;  // finite
  // Of the same tensor one step before, as long as the gradient; or empty. Codes that remember the
  // last step do without then, or are left out.
  std::span<const float> previous;
};

struct RatePoint {
  std::string family;  // of codes that differ in precision only: a line in a plot
  CodecSpeed speed;
  double nmse;
  std::string table;  // where an entropy coder has its probabilities from; else empty
};

struct RateDistortion {
  std::vector<RatePoint> points;  // by family, with falling error in each
  std::string left_out;           // a sentence about what is missing; empty if nothing is
};

std::size_t rate_steps();
RateDistortion measure_rates(const RateInput& input, Progress& progress);

}  // namespace spillway::bench
