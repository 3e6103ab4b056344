// SPDX-License-Identifier: Apache-2.0
//
// `kill -USR2 <pid>` shows what a job waits for: it dumps every flight recorder of the process.
//
//   SPILLWAY_DUMP_SIGNAL  USR2 if unset; USR1, HUP, QUIT, a number of these or of a real-time
//                         signal, or NONE
//   SPILLWAY_FLIGHT_FILE  a path with %h and %p (identity.h), to which dumps are appended;
//                         standard error if unset or if it cannot be opened
//
// A previous handler is called after the dump, with its mask. A handler that the application
// installs later replaces ours, which is installed only once. The signal's default action, such as
// ending the process, no longer happens.
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

// Only the first call with a signal in a process installs; later ones change nothing.
base::Status install_signal_dump(const DumpConfig& config);

}  // namespace spillway::runtime
