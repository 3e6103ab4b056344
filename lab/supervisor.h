// SPDX-License-Identifier: Apache-2.0
//
// The process that is a lab. It is the first one of its process namespace. So when it ends, however
// it ends, the kernel ends all of its ranks and removes all of its namespaces and interfaces.
// Without namespaces it is a plain process whose ranks die with it.
//
// It sets up the hosts, runs the fabric on a thread, starts the commands, and reports to its
// starter through `report_fd` (report.h).
#pragma once

#include <vector>

#include "lab/lab_options.h"
#include "lab/state_directory.h"

namespace spillway::lab {

struct SupervisorTask {
  const LabOptions& options;
  HostPlan plan;
  Isolation isolation;                // resolved
  std::vector<RankCommand> commands;  // per rank
  const StateDirectory& state;
  int report_fd = -1;
  bool stays = false;  // runs until asked to end, even without commands; then removes the state
};

// Runs in a child of the process that made the task, after the namespaces were made.
void supervise(const SupervisorTask& task);

}  // namespace spillway::lab
