// SPDX-License-Identifier: Apache-2.0
//
// Two processes that measure something together, each on a core of its own: a sender and a
// receiver, started at the same time, each with a connected stream to the other for what they have
// to agree on. Each returns a figure; what it cost in processor time is added.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

namespace spillway::cli {

struct SideResult {
  double bytes = 0.0;        // that the side counted
  double seconds = 0.0;      // over which it counted them
  double cpu_seconds = 0.0;  // user and system, over the side's whole life
  double cycles = 0.0;       // of the same; 0 where the machine does not tell
  double extra = 0.0;        // whatever the measurement wants to say
};

// Runs on the side's process; `stream` leads to the other side.
using Side = std::function<SideResult(int stream)>;

// Throws CommandError where a process cannot be started or dies.
std::pair<SideResult, SideResult> run_pair(const Side& sender, const Side& receiver);

}  // namespace spillway::cli
