// SPDX-License-Identifier: Apache-2.0
//
// What a scenario's `port` lines mean: where each host of the topology is attached. Every host has
// exactly one; errors name the line.
#pragma once

#include <vector>

#include "base/status.h"
#include "fabric/emulator.h"
#include "sim/scenario.h"
#include "sim/topology.h"

namespace spillway::fabric {

// One per host, in the topology's order.
base::Result<std::vector<PortSpec>> port_specs(const sim::Scenario& scenario,
                                               const sim::Topology& topology);

}  // namespace spillway::fabric
