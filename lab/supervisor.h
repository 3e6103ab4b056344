// SPDX-License-Identifier: Apache-2.0
//
// The supervisor, the process that owns a lab. It sets up the hosts, runs the fabric on a thread,
// starts the commands, and reports to its starter through `report_fd`.
//
// The supervisor is the first process of its process namespace. So when it ends, for whatever
// reason, the kernel ends all ranks and removes all namespaces and interfaces of the lab. Without
// namespaces it is a plain process whose ranks die with it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "lab/launcher.h"
#include "lab/network/lab_fabric.h"
#include "lab/state_directory.h"

namespace spillway::lab {

// ------------------------------------------------------------------ the report
//
// The report of a lab's supervisor to its starter, as lines of text over a pipe:
//
//   ready                          the network is up, and the commands run
//   error CODE sentence            it could not start, or the fabric failed
//   exit CODE                      of a rank, in rank order
//   interrupted SIGNAL
//   failed RANK                    the first to fail, if one did
//   overlimit                      the commands were ended because the limit expired
//   dataplane NAME
//   fabric N N N ...               FabricSnapshot's numbers in their order
//   port NAME N N N ...            one per switch port
//   adder NAME N N N ...           one per switch that adds, followed by its jobs:
//   sums N N N ...
//   pace N N N ...                 Pace's
//   time NAME N N N ...            TimeReport's
//   trace N N N ...                TraceSummary's, if packets were followed
//   took N N                       nanoseconds elapsed, then nanoseconds of CPU time
//   sample N N N ...               FabricSample's, repeatedly while commands run
//
// Both ends are the same binary, so there is no version.

inline constexpr std::string_view kReadyLine = "ready\n";

std::string error_line(const base::Status& status);
std::string outcome_lines(const LabOutcome& outcome);
std::string sample_line(const FabricSample& sample);

struct Report {
  bool ready = false;
  base::Status error;
  LabOutcome outcome;
};

// Skips incomplete or unknown lines, which a supervisor leaves when it is killed.
Report parse_report(std::string_view text);

// Null if the line is not a sample.
std::optional<FabricSample> parse_sample(std::string_view line);

struct SupervisorTask {
  const LabOptions& options;
  HostPlan plan;
  Isolation isolation;                // resolved
  std::vector<RankCommand> commands;  // per rank
  const StateDirectory& state;
  int report_fd = -1;
  bool stays = false;  // runs until asked to end, even without commands; then removes the state
};

// Call in a child of the process that made the task, in its new namespaces.
void supervise(const SupervisorTask& task);

}  // namespace spillway::lab
