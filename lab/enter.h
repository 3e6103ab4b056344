// SPDX-License-Identifier: Apache-2.0
//
// Runs a command inside a lab that another process keeps up: in its namespaces, on one of its hosts
// or on several at once. Call from a process with one thread that does nothing else afterwards: it
// moves into the lab's user and mount namespaces.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "lab/state_directory.h"

namespace spillway::lab {

// Returns the worst exit code. `own_terminal`: the command keeps this process's input and output;
// only for one host.
base::Result<int> run_inside(const LabRecord& lab, const std::vector<HostRecord>& hosts,
                             const std::vector<std::string>& command, bool own_terminal);

}  // namespace spillway::lab
