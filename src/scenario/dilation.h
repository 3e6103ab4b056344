// SPDX-License-Identifier: Apache-2.0
//
// The same network with time slowed down: rates are divided by a factor, and delays, tenants'
// bursts and the times of faults are multiplied by it. Queues keep their bytes. What characterises
// a network has no dimension and stays: the bandwidth-delay product in packets, queues over that
// product, bursts over round trips. Pure.
#pragma once

#include "scenario/scenario.h"

namespace spillway::scenario {

// False for a topology from a file: its links have rates of their own.
bool can_be_dilated(const Scenario& scenario);

// `factor` of 2: half as fast. Jobs and trainings are left alone; labs do not run them.
Scenario dilated(Scenario scenario, double factor);

}  // namespace spillway::scenario
