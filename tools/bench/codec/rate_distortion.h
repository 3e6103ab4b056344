// SPDX-License-Identifier: Apache-2.0
//
// Compares all codecs on one gradient: bits per value against error, and speed on one core.
// `spillway codec tour` shows this for a user's own gradient.
//
// Bits are those that one rank sends for its own values: planes with the headers of their packets,
// thc and blocks in lanes with room for sums of eight ranks, the others as messages. Error is
// squared error over energy, of one message. Throughput counts the gradient's bytes, 4 per value;
// that of planes includes making packets and their tags.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tools/bench/codec/speed.h"
#include "tools/bench/progress.h"

namespace spillway::bench {

struct RateInput {
  std::span<const float> gradient;  // finite
  // The same tensor one step before, as long as the gradient; or empty. Codes that remember the
  // last step then do without it, or are left out.
  std::span<const float> previous;
};

struct RatePoint {
  std::string family;  // codes that differ only in precision: a line in a plot
  CodecSpeed speed;
  double nmse;
  std::string table;  // source of an entropy coder's probabilities; else empty
};

struct RateDistortion {
  std::vector<RatePoint> points;  // by family, with decreasing error in each
  std::string left_out;           // a sentence about what is missing; empty if nothing is
};

std::size_t rate_steps();
RateDistortion measure_rates(const RateInput& input, Progress& progress);

}  // namespace spillway::bench
