// SPDX-License-Identifier: Apache-2.0
//
// A network on this machine: the hosts, links and switches of a scenario, and commands that run on
// the hosts. run_lab() returns when all commands have ended and nothing of the lab is left.
// start_lab() leaves it running in the background for other processes.
//
// Nothing is made outside the lab's own namespaces and its state directory. If the calling process
// dies, by whatever signal, a lab of run_lab() ends with it. During run_lab(), SIGINT, SIGTERM and
// SIGHUP end the lab instead of the process, and the outcome names the signal.
//
// Call from a process with one thread: the lab is forked from it.
#pragma once

#include <filesystem>
#include <vector>

#include "base/status.h"
#include "lab/lab_options.h"
#include "lab/state_directory.h"

namespace spillway::lab {

// At most one command per host.
base::Result<LabOutcome> run_lab(const LabOptions& options,
                                 const std::vector<RankCommand>& commands,
                                 const std::filesystem::path& state_root = default_state_root());

struct StartedLab {
  LabRecord record;
  std::vector<HostRecord> hosts;
};

base::Result<StartedLab> start_lab(const LabOptions& options,
                                   const std::filesystem::path& state_root = default_state_root());

}  // namespace spillway::lab
