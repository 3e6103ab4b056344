// SPDX-License-Identifier: Apache-2.0
//
// A switch at work, shown until it is told to stop: a table that renews itself on a terminal, lines
// of JSON, numbers for Prometheus. For switches in user space and in the kernel.
#pragma once

#include <signal.h>
#include <CLI/CLI.hpp>

#include <functional>
#include <string>

#include "base/units.h"
#include "fabric/emulator.h"

namespace spillway::cli {

// What a switch in the kernel is called where nobody gave it a name.
inline constexpr const char* kDefaultSwitchName = "default";

struct WatchOptions {
  std::string metrics;
  std::string every;
  std::string duration;
  bool json = false;
};

void add_watch_options(CLI::App& command, WatchOptions& options);
// Throws CLI::ValidationError: before anything is opened.
void check_watch_options(const WatchOptions& options);

// Signals that end the watch are waited for, not handled: blocked before any thread is made, so
// that every thread has them blocked.
class EndSignals {
 public:
  EndSignals();
  ~EndSignals();
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  // True once one has come.
  bool wait(base::Duration most) const;

 private:
  sigset_t set_{};
  sigset_t before_{};
};

// Called from several threads at once where there are metrics.
using TakeSnapshot = std::function<fabric::FabricSnapshot()>;

// Until a signal comes or the asked-for time is over.
void watch_fabric(const WatchOptions& options, const EndSignals& signals,
                  const TakeSnapshot& snapshot);

// The last word, on all of `elapsed`.
void print_fabric(const WatchOptions& options, const fabric::FabricSnapshot& snapshot,
                  base::Duration elapsed);

}  // namespace spillway::cli
