// SPDX-License-Identifier: Apache-2.0
//
// The route of a chunk's numbers, as one rank sees it: which ranks parts of the sum come from,
// which rank this one sends its own to, and how the whole sum gets round.
//
//   kDirect   chunk c belongs to rank c: all others send it their parts, it sends them the sum. Two
//             steps, and two kinds of numbers: those of one rank and the sum of all
//   kRing     chunk c begins at rank c and goes round, every rank adding its part; rank c - 1 has
//             the sum, which goes round once more, coded once and passed on as it is. A kind of
//             numbers for each step: sums of 1, 2, ... ranks
//
// A step is the number of ranks in the sum that travels. Pure values.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collective/operation.h"

namespace spillway::collective {

struct CodedRoute {
  std::vector<std::uint16_t> sources;  // ranks whose parts are added to this rank's
  std::uint16_t received_step = 0;     // ranks in each of these parts
  std::optional<std::uint16_t> to;     // the rank that gets this rank's; none: it has the whole sum
  std::uint16_t sent_step = 1;
  std::uint16_t result_from = 0;
  std::vector<std::uint16_t> result_to;

  bool has_sum() const { return !to; }
};

// `algorithm` is kDirect or kRing; one chunk per rank, two ranks at least.
CodedRoute route_of(Algorithm algorithm, const Group& group, std::uint16_t chunk);

}  // namespace spillway::collective
