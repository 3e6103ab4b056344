// SPDX-License-Identifier: Apache-2.0
//
// `kill -USR2 <pid>` shows what a job waits for: every flight recorder of the process is dumped.
//
//   SPILLWAY_DUMP_SIGNAL  USR2 without it; USR1, HUP, QUIT, their numbers, those of real-time
//                         signals, or NONE
//   SPILLWAY_FLIGHT_FILE  a path with %h and %p (identity.h) that dumps are added to; standard
//                         error without it, or where it cannot be opened
//
// A handler that was there before is called after the dump, with its mask. One that the application
// installs later takes our place: the handler is installed once and never again. What a signal did
// by default, such as end the process, it does no more.
//
// The handler allocates nothing and takes no lock. install_signal_dump: any thread.
#pragma once

#include <string>

#include "base/environment.h"
#include "base/status.h"

namespace spillway::runtime {

struct DumpConfig {
  int signal = 0;      // 0: none
  std::string file{};  // expanded; empty: standard error
};

base::Result<DumpConfig> dump_config(const base::Environment& environment);

// The first call in a process installs; what later ones ask for is passed over.
base::Status install_signal_dump(const DumpConfig& config);

}  // namespace spillway::runtime
