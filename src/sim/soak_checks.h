// SPDX-License-Identifier: Apache-2.0
//
// What must hold in every soak world, whatever was drawn. Each check looks at a record and adds a
// sentence per failure, with what it is about and the numbers.
//
//   promises    messages that ended well are within their bounds, counted packet by packet, and
//               what must arrive has arrived; what arrived was sent
//   tensors     are bit for bit what the planes that came make; nothing beside them was touched
//   ends        every message ends in time at both ends; only the dead, the unreachable and those
//               who gave up themselves are given up
//   bounds      memory stays below what limits imply; no endpoint takes more control packets than
//               there were; nothing is left on its way in the end
#pragma once

#include <string>
#include <vector>

#include "sim/soak_record.h"
#include "sim/soak_world.h"

namespace spillway::sim {

std::vector<std::string> check_soak(const SoakWorld& world, const SoakRecord& record);

}  // namespace spillway::sim
