// SPDX-License-Identifier: Apache-2.0
//
// What Slurm says about a job step, for srun itself and for launchers that it starts. Rank 0 is on
// the first node of the step's list, unless tasks were distributed arbitrarily (srun -m arbitrary).
//
// Slurm compresses its lists. Node lists look like "gnode[10,20-25,037],login1": a range's first
// number sets the number of digits. A name may have several brackets ("rack[1-2]n[01-04]"), the
// last varying fastest. Tasks per node look like "2(x3),1".
//
// Pure functions; any thread. Limit: a list of more than kMaxNodes is an error, so that a few wrong
// characters cannot ask for gigabytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "launch/family.h"

namespace spillway::runtime {

inline constexpr std::size_t kMaxNodes = 65536;

// The node names in list order; at least one.
base::Result<std::vector<std::string>> expand_node_list(std::string_view list);

// "2(x3),1" is 2, 2, 2, 1.
base::Result<std::vector<std::uint32_t>> expand_task_counts(std::string_view list);

// The job, the step and the requeue count.
std::vector<std::string> slurm_identity(const base::Environment& environment);

base::Result<RendezvousPoint> slurm_meeting(const base::Environment& environment);

}  // namespace spillway::runtime
