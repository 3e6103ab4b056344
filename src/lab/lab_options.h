// SPDX-License-Identifier: Apache-2.0
//
// What a lab is asked to be and what it tells in the end: plain values.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "fabric/emulator.h"
#include "lab/network/fabric_sampler.h"
#include "lab/network/host_plan.h"
#include "lab/network/isolation.h"
#include "lab/network/lab_fabric.h"
#include "lab/pace.h"
#include "lab/rank_group.h"
#include "lab/trace/trace_summary.h"
#include "lab/watch/time_account.h"
#include "scenario/scenario.h"

namespace spillway::lab {

struct LabOptions {
  scenario::Scenario scenario;  // its jobs are ignored
  Isolation isolation = Isolation::kAuto;
  Dataplane dataplane = Dataplane::kAuto;
  unsigned mtu = kDefaultMtu;
  std::string tcp;  // congestion control of the hosts' kernels; empty: the machine's own
  std::uint16_t port = 7077;
  std::uint16_t master_port = 29500;
  base::Duration grace = base::seconds(10);
  base::Duration limit;                  // of the commands' time; 0: none
  std::vector<std::string> environment;  // "KEY=value", for every rank
  std::string name;                      // empty: one is made up
  OutputFds output;
  TraceOptions trace{};  // of labs that end with their commands
  // Of such labs, too: called by the starter as the samples come. Empty: none are taken.
  std::function<void(const FabricSample&)> on_sample{};
};

// What one rank runs. Fewer commands than hosts leave the last hosts idle.
struct RankCommand {
  std::vector<std::string> argv;
  std::vector<std::string> environment;  // "KEY=value", over those of the lab
};

inline constexpr int kOverLimitExit = 124;  // as timeout(1) has it

struct LabOutcome {
  std::vector<int> exit_codes;              // per rank; 128 + n: killed by signal n
  int interrupted_by = 0;                   // the signal that ended the lab early; 0: none did
  std::optional<std::size_t> first_failed;  // rank_group.h
  bool over_limit = false;                  // it was ended because its time was over
  Isolation isolation = Isolation::kNone;
  Dataplane dataplane = Dataplane::kUser;
  fabric::FabricSnapshot fabric;
  Pace pace;                          // whether comparisons hold
  TimeReport time;                    // where it went
  std::optional<TraceSummary> trace;  // where packets were followed
  base::Duration elapsed;             // from the commands' start to the last one's end
  base::Duration cpu;                 // of the commands and what they started, user and system

  // 128 + the signal of an interrupt, else kOverLimitExit of a lab that was over its limit, else
  // the largest of the exit codes.
  int worst_exit_code() const;
};

}  // namespace spillway::lab
