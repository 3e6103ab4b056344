// SPDX-License-Identifier: Apache-2.0
//
// What a switch in the kernel adds up, as user space sees it: limits of jobs on their way into its
// maps, and what was counted on the way out. No state.
#pragma once

#include "base/status.h"
#include "fabric/emulator.h"
#include "kernel/switch_maps.h"
#include "scenario/topology.h"

namespace spillway::kernel {

// Before anything is attached. An error where more jobs have limits than there is room for.
base::Status set_up_sums(const scenario::Adder& adder, SwitchMaps& maps);

// `config` is the maps' own.
sim::AdderTotals adder_totals(const SwitchMaps& maps, const spillway_sum_config& config);

}  // namespace spillway::kernel
