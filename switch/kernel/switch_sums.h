// SPDX-License-Identifier: Apache-2.0
//
// User-space side of adding in a kernel switch: writes the limits of jobs to its maps, and reads
// its counters. No state.
#pragma once

#include "base/status.h"
#include "sim/scenario/topology.h"
#include "switch/fabric/emulator.h"
#include "switch/kernel/switch_maps.h"

namespace spillway::kernel {

// Call before anything is attached. Fails if too many jobs have limits.
base::Status set_up_sums(const scenario::Adder& adder, SwitchMaps& maps);

// `config` must be the one in the maps.
sim::AdderTotals adder_totals(const SwitchMaps& maps, const spillway_sum_config& config);

}  // namespace spillway::kernel
