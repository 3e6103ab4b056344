// SPDX-License-Identifier: Apache-2.0
//
// Runs all training jobs of a scenario (`training` lines, scenario/training.h) on one network:
// `spillway sim jobs`. The result is a function of the scenario alone.
//
// Jobs are numbered from 0 in the order of their lines; static switches assign their slots by these
// numbers. Faults of links, hosts and switches are allowed; clock skew and flows (`job`,
// `background`, `tenant`) are refused.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "sim/network.h"
#include "sim/scenario/scenario.h"
#include "sim/training/job.h"

namespace spillway::sim {

struct TrainingsResult {
  bool finished = false;  // all jobs ended or failed
  base::Instant end;
  std::uint64_t events = 0;
  std::vector<TrainingResult> jobs;
  NetworkTotals network;

  // Mean over the jobs that are done.
  base::Duration mean_completion() const;
};

base::Result<TrainingsResult> run_trainings(const scenario::Scenario& scenario);

}  // namespace spillway::sim
