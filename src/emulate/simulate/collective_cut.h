// SPDX-License-Identifier: Apache-2.0
//
// A collective as flows between ranks, for every model that moves them. The shapes are those of the
// shipped algorithms (collective/exact/planner.h), and so is the choice among them unless a user
// chooses; a switch that adds (kSwitch) carries one copy over each link on the way up and down.
//
//   shape      flows                         of an all-reduce of S bytes among n, each moves
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
  double flow_bytes = 0.0;  // of each flow, all steps together
  std::uint32_t steps = 1;  // of which each waits for the one before
};

// Among `members` ranks, at least two. `all_reduce_factor` is what a code makes of an all-reduce's
// bytes.
Cut cut_of(const Transfer& transfer, std::uint32_t members, CutAlgorithm algorithm,
           double all_reduce_factor);

}  // namespace spillway::emulate
