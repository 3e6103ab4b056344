// SPDX-License-Identifier: Apache-2.0
//
// Turns a collective into flows between ranks, for every model that moves data. The shapes are
// those of the shipped algorithms (collective/exact/planner.h). The choice among them is also
// theirs unless the user chooses. A switch that adds (kSwitch) carries one copy over each link on
// the way up and down.
//
//   shape      flows                         each moves, in an all-reduce of S bytes among n
//   ring       each rank to the next         2 (n - 1) / n S, in 2 (n - 1) steps
//   pairs      each rank to every other      2 / n S, in 2 steps
//   to root    each rank to the root         (gather)
//   from root  the root to each rank         (scatter)
//   switch     each rank to the switch and back    S, in 2 steps
//
// Pure functions.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "emulate/simulate/communication_model.h"

namespace spillway::emulate {

enum class CutAlgorithm : std::uint8_t { kAutomatic, kRing, kDirect, kSwitch };

enum class CutShape : std::uint8_t { kRing, kPairs, kToRoot, kFromRoot, kSwitch };

struct Cut {
  CutShape shape = CutShape::kPairs;
  double flow_bytes = 0.0;  // per flow, in all steps together
  std::uint32_t steps = 1;  // each waits for the one before
};

// `members`: at least two. `all_reduce_factor` scales an all-reduce's bytes, for its codec.
Cut cut_of(const Transfer& transfer, std::uint32_t members, CutAlgorithm algorithm,
           double all_reduce_factor);

}  // namespace spillway::emulate
