// SPDX-License-Identifier: Apache-2.0
//
// Random small worlds for soak tests: a topology, switches, jobs, background traffic, faults and an
// attacker, all drawn from one seed. A world's scenario is text that `spillway sim run` reads, so
// that a failure can be examined on its own.
//
// Worlds are as hostile as possible while it stays clear what must hold. Queues hold at least a few
// whole packets. No link is cut for good unless there is another path. Everything that a message
// needs to end arrives eventually. A world runs in some 10 ms.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/units.h"
#include "sim/packet.h"
#include "sim/scenario/scenario.h"

namespace spillway::sim {

// An attacker on one of the hosts; it has heard everything.
struct AttackPlan {
  HostId host = 0;
  std::uint32_t packets = 0;
  base::Duration gap;  // between two packets
  std::uint64_t seed = 0;
};

struct SoakWorld {
  std::uint64_t seed = 0;
  std::string text;  // of `scenario`, which additionally limits tables
  scenario::Scenario scenario;
  std::optional<AttackPlan> attack;

  // The end of the last fault that is not permanent.
  base::Instant faults_over;
  // A message must end within this time after its start or faults_over, whichever is later.
  base::Duration message_limit;
};

SoakWorld draw_soak_world(std::uint64_t seed);

// Describes the whole world for people.
std::string describe(const SoakWorld& world);

}  // namespace spillway::sim
