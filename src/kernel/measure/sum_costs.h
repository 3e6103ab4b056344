// SPDX-License-Identifier: Apache-2.0
//
// What a sum packet costs, by what its slot makes of it, beside a data packet of the same size that
// is only sent on: the switch's program in XDP, which decides about the queue as well; the one that
// forwards in tc, behind which another decides; and the same machine in user space, frame and slot
// alone (user_sums.h). Programs are measured as program_costs.h does: repeated where neither frame
// nor slot change, else one at a time, each on a slot in the state that it takes, less what a
// single run costs on top.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kernel/measure/program_costs.h"

namespace spillway::kernel {

// `step` is told before each of sum_cost_steps(options) measurements. frame_bytes is not looked at.
base::Result<std::vector<ProgramCost>> measure_sum_costs(
    const CostOptions& options, const std::function<void(std::string_view)>& step);
std::size_t sum_cost_steps(const CostOptions& options);

}  // namespace spillway::kernel
