// SPDX-License-Identifier: Apache-2.0
//
// All training jobs of a scenario (`training` lines, scenario/training.h) on one network, from
// beginning to end: `spillway sim jobs`. The result is a function of the scenario alone.
//
// Jobs are numbered from 0 in the order of their lines, by which static switches share out their
// slots. Faults of links, hosts and switches happen; clocks are right. Flows (`job`, `background`,
// `tenant`) are not for this, and refused.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "scenario/scenario.h"
#include "sim/network.h"
#include "sim/training/job.h"

namespace spillway::sim {

struct TrainingsResult {
  bool finished = false;  // all jobs ended, well or not
  base::Instant end;
  std::uint64_t events = 0;
  std::vector<TrainingResult> jobs;
  NetworkTotals network;

  // Of those that are done.
  base::Duration mean_completion() const;
};

base::Result<TrainingsResult> run_trainings(const scenario::Scenario& scenario);

}  // namespace spillway::sim
