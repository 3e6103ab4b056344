// SPDX-License-Identifier: Apache-2.0
//
// What a sum packet costs, by what its slot does with it, next to a data packet of the same size
// that is only forwarded. Measured are three: the switch's XDP program, which also decides about
// the queue; the tc program that forwards, after which another one decides; and the state machine
// alone in user space (user_sums.h). Programs are measured as in program_costs.h: repeatedly if
// neither frame nor slot changes. Otherwise one at a time, each on a slot prepared for it, minus
// the extra cost of a single run.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "switch/kernel/measure/program_costs.h"

namespace spillway::kernel {

// `step` is called before each of sum_cost_steps(options) measurements. Ignores frame_bytes.
base::Result<std::vector<ProgramCost>> measure_sum_costs(
    const CostOptions& options, const std::function<void(std::string_view)>& step);
std::size_t sum_cost_steps(const CostOptions& options);

}  // namespace spillway::kernel
