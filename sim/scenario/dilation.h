// SPDX-License-Identifier: Apache-2.0
//
// The same network with time slowed down. Rates are divided by a factor; delays, leases, tenants'
// bursts and the times of faults are multiplied by it. Queues keep their bytes. The dimensionless
// numbers of a network stay the same: the bandwidth-delay product in packets, queues over that
// product, bursts over round trips. Pure.
#pragma once

#include "sim/scenario/scenario.h"

namespace spillway::scenario {

// False for a topology from a file: its links have their own rates.
bool can_be_dilated(const Scenario& scenario);

// A `factor` of 2 makes the network half as fast. Jobs and trainings stay as they are; labs do not
// run them.
Scenario dilated(Scenario scenario, double factor);

}  // namespace spillway::scenario
