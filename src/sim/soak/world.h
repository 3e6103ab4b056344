// SPDX-License-Identifier: Apache-2.0
//
// Random small worlds for soak tests: a topology, switches, jobs, other people's traffic, faults
// and an attacker, all drawn from one seed. A world's scenario is text that `spillway sim run`
// reads, so that what a soak test found can be looked at on its own.
//
// Worlds are as nasty as can be while it stays clear what must hold in them: queues take a few
// whole packets at least, no link is cut for good unless there is another path, and everything a
// message needs to end sooner or later comes through some day. Sizes are such that a world runs in
// some 10 ms.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/units.h"
#include "scenario/scenario.h"
#include "sim/packet.h"

namespace spillway::sim {

// Someone on one of the hosts who has heard everything and sends what he likes.
struct AttackPlan {
  HostId host = 0;
  std::uint32_t packets = 0;
  base::Duration gap;  // between two of them
  std::uint64_t seed = 0;
};

struct SoakWorld {
  std::uint64_t seed = 0;
  std::string text;  // of the scenario, which adds limits on tables to it
  scenario::Scenario scenario;
  std::optional<AttackPlan> attack;

  // Faults that pass have passed by then.
  base::Instant faults_over;
  // A message that began, at the earliest, when the faults were over must end within this time.
  base::Duration message_limit;
};

SoakWorld draw_soak_world(std::uint64_t seed);

// Everything about the world, for people.
std::string describe(const SoakWorld& world);

}  // namespace spillway::sim
