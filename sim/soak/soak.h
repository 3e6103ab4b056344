// SPDX-License-Identifier: Apache-2.0
//
// Soak tests: random small worlds in which many faults happen at once, and what must still hold
// (checks.h). A world, and everything that happens in it, is a function of its seed; the digest
// tells whether two runs were the same.
//
//   world    draws a world            watch    records what happens
//   attack   the attacker             checks   judges it
//   forgery  forged packets
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
  std::vector<std::string> failures;  // sentences; empty if all is well
};

SoakResult run_soak_world(std::uint64_t seed);

}  // namespace spillway::sim
