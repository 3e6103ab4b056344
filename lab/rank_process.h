// SPDX-License-Identifier: Apache-2.0
//
// One command on one host of a lab: a process group of its own, in the host's network namespace,
// with no input and its output on pipes.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/status.h"
#include "net/system_call.h"

namespace spillway::lab {

struct RankLaunch {
  std::string host;  // for messages
  std::vector<std::string> argv;
  std::vector<std::string> environment;  // "KEY=value"
  int network_namespace = -1;            // -1: that of the caller
  bool own_terminal = false;             // keeps the caller's input, output and process group
};

struct RankProcess {
  pid_t pid = -1;
  net::UniqueFd out;  // non-blocking read ends; invalid if the command keeps the terminal
  net::UniqueFd err;
};

// Returns once the command runs, or with the reason why it cannot. The process dies with the
// calling thread.
base::Result<RankProcess> start_rank(const RankLaunch& launch);

// As in a shell: the exit code, or 128 + the signal's number.
int exit_code_of(int wait_status);

}  // namespace spillway::lab
