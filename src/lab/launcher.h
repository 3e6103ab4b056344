// SPDX-License-Identifier: Apache-2.0
//
// A network on this machine: hosts, links and switches of a scenario, and commands that run on the
// hosts. run_lab() returns when all commands have ended and nothing of the lab is left; start_lab()
// leaves it running in the background for others to use.
//
// Nothing is made outside the lab's own namespaces and its state directory. If the calling process
// dies, by whatever signal, a lab of run_lab() goes with it. While run_lab() works, SIGINT, SIGTERM
// and SIGHUP end the lab instead of the process and are told in the outcome.
//
// Call from a process with one thread: the lab is a copy of it.
#pragma once

#include <filesystem>
#include <vector>

#include "base/status.h"
#include "lab/lab_options.h"
#include "lab/state_directory.h"

namespace spillway::lab {

// One command per host, at most.
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
