// SPDX-License-Identifier: Apache-2.0
//
// What a lab is asked to be, and its outcome: plain values.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "lab/network/fabric_sampler.h"
#include "lab/network/host_plan.h"
#include "lab/network/isolation.h"
#include "lab/network/lab_fabric.h"
#include "lab/pace.h"
#include "lab/rank_group.h"
#include "lab/trace/trace_summary.h"
#include "lab/watch/time_account.h"
#include "sim/scenario/scenario.h"
#include "switch/fabric/emulator.h"

namespace spillway::lab {

// How much slower time runs in a lab than in the network that it stands for. What ranks compute is
// not slowed.
struct Slowdown {
  double preset = 1;   // of the preset; 1: it stands for itself
  double machine = 1;  // on top of that, because this machine was late

  double total() const { return preset * machine; }
};

struct LabOptions {
  scenario::Scenario scenario;  // its jobs are ignored
  Slowdown slowdown{};          // of the scenario, which has it already
  Isolation isolation = Isolation::kAuto;
  Dataplane dataplane = Dataplane::kAuto;
  unsigned mtu = kDefaultMtu;
  std::string tcp;  // congestion control of the hosts' kernels; empty: the machine's own
  std::uint16_t port = 7077;
  std::uint16_t master_port = 29500;
  base::Duration grace = base::seconds(10);
  base::Duration limit;                  // for the commands; 0: none
  std::vector<std::string> environment;  // "KEY=value", for every rank
  std::string name;                      // empty: a generated one
  OutputFds output;
  TraceOptions trace{};  // for labs that end with their commands
  // For such labs, too: the starter calls it with each sample of the fabric. Empty: no samples.
  std::function<void(const FabricSample&)> on_sample{};
};

// What one rank runs. Fewer commands than hosts leave the last hosts idle.
struct RankCommand {
  std::vector<std::string> argv;
  std::vector<std::string> environment;  // "KEY=value"; override those of the lab
};

inline constexpr int kOverLimitExit = 124;  // as in timeout(1)

struct LabOutcome {
  std::vector<int> exit_codes;              // per rank; 128 + n: killed by signal n
  int interrupted_by = 0;                   // the signal that ended the lab early; 0: none did
  std::optional<std::size_t> first_failed;  // see rank_group.h
  bool over_limit = false;                  // it was ended because its limit expired
  Isolation isolation = Isolation::kNone;
  Dataplane dataplane = Dataplane::kUser;
  fabric::FabricSnapshot fabric;
  Pace pace;                          // whether comparisons hold
  TimeReport time;                    // where the time went
  std::optional<TraceSummary> trace;  // set if packets were followed
  base::Duration elapsed;             // from the commands' start to the last one's end
  base::Duration cpu;                 // of the commands and what they started, user and system

  // 128 + the signal of an interrupt; else kOverLimitExit if the limit expired; else the largest
  // exit code.
  int worst_exit_code() const;
};

}  // namespace spillway::lab
