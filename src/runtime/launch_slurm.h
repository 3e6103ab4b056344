// SPDX-License-Identifier: Apache-2.0
//
// What Slurm says about a job step, for itself and for launchers that it starts. Rank 0 is on the
// first node of the step's list, unless tasks were distributed arbitrarily (srun -m arbitrary).
//
// Pure functions of the environment; any thread.
#pragma once

#include <string>
#include <vector>

#include "runtime/launch_family.h"

namespace spillway::runtime {

// The job, the step and how often the job was requeued.
std::vector<std::string> slurm_identity(const Environment& environment);

base::Result<RendezvousPoint> slurm_meeting(const Environment& environment);

}  // namespace spillway::runtime
