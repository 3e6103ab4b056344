// SPDX-License-Identifier: Apache-2.0
//
// Random small worlds for all-reduces in every code there is: some tensors, step after step, over
// links that lose, repeat, reorder, cut and damage; ranks that come late, ranks that have forgotten
// what others remember of a tensor, and steps that are given up and begun again by a new epoch. All
// drawn from one seed.
//
// No host dies and no link is cut for good: all that is not given up ends well.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "collective/operation.h"
#include "scenario/scenario.h"

namespace spillway::sim {

struct CodeTensor {
  std::size_t count = 0;
  double nonzero = 1.0;  // share of its values
  bool has_name = true;  // across operations
};

// One all-reduce of all ranks. Without a tolerance it loses nothing.
struct CodeCall {
  std::uint32_t tensor = 0;
  std::optional<collective::Tolerance> tolerance{};
  collective::Algorithm algorithm = collective::Algorithm::kAutomatic;
  std::optional<std::uint16_t> forgetful{};  // a rank that knows the tensor by another name
};

// A rank gives up while this call is under way; a new epoch begins with it.
struct CodeAbort {
  std::uint32_t call = 0;
  std::uint16_t rank = 0;
  base::Duration after;  // the rank's part of the call began
};

struct CodeWorld {
  std::uint64_t seed = 0;
  std::string text;
  scenario::Scenario scenario;
  std::uint16_t ranks = 0;
  std::vector<CodeTensor> tensors;
  std::vector<CodeCall> calls;
  std::optional<CodeAbort> abort;
  bool is_in_turn = false;  // ranks call when their last call has ended; else every `gap`
  base::Duration gap;
  base::Duration jitter;  // by which ranks call later than that, at most
  base::Duration limit;   // within which an epoch has ended
};

CodeWorld draw_code_world(std::uint64_t seed);

// Everything about the world, for people.
std::string describe(const CodeWorld& world);

}  // namespace spillway::sim
