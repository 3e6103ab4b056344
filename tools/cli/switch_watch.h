// SPDX-License-Identifier: Apache-2.0
//
// Displays a running switch until stopped: a table that redraws itself on a terminal, lines of
// JSON, metrics for Prometheus. For switches in user space and in the kernel.
#pragma once

#include <signal.h>
#include <CLI/CLI.hpp>

#include <functional>
#include <string>

#include "base/units.h"
#include "switch/fabric/emulator.h"

namespace spillway::cli {

// The default name of a switch in the kernel.
inline constexpr const char* kDefaultSwitchName = "default";

struct WatchOptions {
  std::string metrics;
  std::string every;
  std::string duration;
  bool json = false;
};

void add_watch_options(CLI::App& command, WatchOptions& options);
// Throws CLI::ValidationError. Call it before anything is opened.
void check_watch_options(const WatchOptions& options);

// Waits for the signals that end the watch instead of handling them. Construct it before any
// thread, so that every thread has them blocked.
class EndSignals {
 public:
  EndSignals();
  ~EndSignals();
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  // True once a signal has arrived.
  bool wait(base::Duration most) const;

 private:
  sigset_t set_{};
  sigset_t before_{};
};

// With metrics enabled, several threads call it at once.
using TakeSnapshot = std::function<fabric::FabricSnapshot()>;

// Runs until a signal arrives or the requested time is over.
void watch_fabric(const WatchOptions& options, const EndSignals& signals,
                  const TakeSnapshot& snapshot);

// Prints the final state, covering all of `elapsed`.
void print_fabric(const WatchOptions& options, const fabric::FabricSnapshot& snapshot,
                  base::Duration elapsed);

}  // namespace spillway::cli
