// SPDX-License-Identifier: Apache-2.0
//
// Runs this command once more for every rank of a job on loopback, and waits until all have ended.
// Also starts parameter servers (`spillway ps`) if requested.
//
// When a rank fails, the others have kRankGrace to notice and report it, then they are killed;
// SIGINT, SIGTERM and SIGHUP are passed on. Ranks do not outlive this process, however it ends.
// They share its terminal: rank 0 prints.
//
// Throws CommandError if ranks cannot be started. Call from a process with one thread.
#pragma once

#include <string>

#include "base/units.h"

namespace spillway::bench {

inline constexpr base::Duration kRankGrace = base::milliseconds(2500);

struct LocalJob {
  unsigned ranks = 2;
  unsigned servers = 0;
};

// `mark` is appended to the command line, so that the command knows it is a rank. Returns the exit
// code: 0 if all ended well, 1 if one failed, 128 plus the number of a signal that asked for the
// end.
int run_ranks_here(const LocalJob& job, const std::string& mark);

}  // namespace spillway::bench
