// SPDX-License-Identifier: Apache-2.0
//
// The keys of `job` and `background` lines (scenario.h). `background` takes all that `job` does but
// the pattern, which it is, and speaks DCTCP unless told otherwise. Settings of a protocol that the
// job does not speak are read and ignored, so that one file compares protocols by an override of
// job.protocol alone.
#pragma once

#include "base/status.h"
#include "sim/scenario.h"
#include "sim/scenario_text.h"

namespace spillway::sim {

base::Status read_job(const Directive& directive, JobSpec& job);
base::Status read_background(const Directive& directive, JobSpec& job);

}  // namespace spillway::sim
