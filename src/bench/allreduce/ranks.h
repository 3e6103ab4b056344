// SPDX-License-Identifier: Apache-2.0
//
// This very command once more for every rank of a job on loopback, until all have ended; beside
// them parameter servers (`spillway ps`), where they are asked for.
//
// When a rank fails, the others have kRankGrace to notice and say so, then they are killed; SIGINT,
// SIGTERM and SIGHUP are passed on. Ranks do not outlive this process, however it ends. They keep
// its terminal: rank 0 prints.
//
// Throws CommandError where ranks cannot be started. Call from a process with one thread.
#pragma once

#include <string>

#include "base/units.h"

namespace spillway::bench {

inline constexpr base::Duration kRankGrace = base::milliseconds(2500);

struct LocalJob {
  unsigned ranks = 2;
  unsigned servers = 0;
};

// `mark` is added to the command's words, so that it knows it is a rank. The exit code: 0 where all
// ended well, 1 where one failed, 128 and the signal's number where a signal asked for the end.
int run_ranks_here(const LocalJob& job, const std::string& mark);

}  // namespace spillway::bench
