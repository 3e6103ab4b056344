// SPDX-License-Identifier: Apache-2.0
//
// Soak tests: random small worlds in which everything goes wrong at once, and what must hold all
// the same (checks.h). A world is a function of its seed; so is all that happens in it, and
// the digest says whether it was the same once more.
//
//   world   draws a world           watch    writes down what happens
//   attack  someone malicious       checks   judges it
//   forgery what he makes of packets
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/soak/checks.h"
#include "sim/soak/world.h"

namespace spillway::sim {

struct SoakResult {
  SoakWorld world;
  SoakRecord record;
  std::vector<std::string> failures;  // sentences; none: all is well
};

SoakResult run_soak_world(std::uint64_t seed);

}  // namespace spillway::sim
