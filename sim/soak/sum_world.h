// SPDX-License-Identifier: Apache-2.0
//
// Random small worlds for sums: switches that add with few slots, several jobs that compete for
// them, links that lose, duplicate, reorder, cut and damage, switches that restart, and a forger.
// All is drawn from one seed; the scenario is text that can be read again.
//
// No host dies and no link is cut for good: all sums end, so that the test can check who is in
// them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "sim/scenario/scenario.h"
#include "transport/sum.h"

namespace spillway::sim {

// Ranks are on consecutive hosts. Every operation has the same pieces.
struct SumJobPlan {
  std::uint16_t number = 0;
  scenario::HostId first_host = 0;
  std::uint16_t ranks = 0;
  std::uint32_t operations = 0;
  std::vector<std::uint16_t> owners;  // of each piece
  std::uint32_t chunks = 0;           // of each piece
  std::uint32_t loss_bound_ppm = 0;
  std::uint8_t urgency = 0;
  bool is_wrong_about_need = false;  // tells switches random numbers of parts to wait for
  bool owners_contribute = true;
  base::Duration gap;     // between the starts of two operations
  base::Duration jitter;  // largest random delay of a rank's start
};

struct SumAttack {
  scenario::HostId host = 0;
  std::uint32_t packets = 0;
  base::Duration gap;
};

struct SumWorld {
  std::uint64_t seed = 0;
  std::string text;
  scenario::Scenario scenario;
  std::vector<SumJobPlan> jobs;
  std::optional<SumAttack> attack;
  base::Instant limit;  // everything must have ended by then
};

SumWorld draw_sum_world(std::uint64_t seed);

// Describes the whole world for people.
std::string describe(const SumWorld& world);

}  // namespace spillway::sim
