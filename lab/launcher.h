// SPDX-License-Identifier: Apache-2.0
//
// Starts a lab: a network on this machine with the hosts, links and switches of a scenario, and
// commands that run on the hosts. LabOptions says what to start, LabOutcome how it went.
//
//   run_lab()     runs commands, and returns when they have ended and nothing of the lab is left
//   start_lab()   leaves a lab running in the background for other processes
//   run_inside()  runs a command in a lab that is already running
//
// Nothing is made outside the lab's own namespaces and its state directory. If the calling process
// of run_lab() dies, by whatever signal, the lab ends with it. During run_lab(), SIGINT, SIGTERM
// and SIGHUP end the lab instead of the process, and the outcome names the signal.
//
// Call these from a process with one thread, because they fork.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "lab/network/isolation.h"
#include "lab/network/lab_fabric.h"
#include "lab/network/links.h"
#include "lab/rank_group.h"
#include "lab/state_directory.h"
#include "lab/time_account.h"
#include "lab/trace/packet_paths.h"
#include "sim/scenario/scenario.h"
#include "switch/fabric/emulator.h"

namespace spillway::lab {

// ------------------------------------------------------------------ options and outcomes
//
// Plain values.

// How much slower time runs in a lab than in the network that it stands for. Computation is not
// slowed down.
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
  std::string tcp;            // congestion control of the hosts' kernels; empty: the machine's own
  std::uint16_t port = 7077;  // of a host's first rank; the next ones follow
  std::uint16_t ranks_per_host = 1;  // of labs that end with their commands; needs namespaces
  std::uint16_t master_port = 29500;
  base::Duration grace = base::seconds(10);
  base::Duration limit;                  // for the commands; 0: none
  std::vector<std::string> environment;  // "KEY=value", for every rank
  std::string name;                      // empty: a generated one
  OutputFds output;
  TraceOptions trace{};  // for labs that end with their commands
  // Also for such labs: the starter calls it with each sample of the fabric. Empty: no samples.
  std::function<void(const FabricSample&)> on_sample{};
};

// The command of one rank. Ranks are numbered host by host. Fewer commands than ranks leave the
// last ones out.
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

inline constexpr std::uint16_t kMaxRanksPerHost = 64;

// Runs at most one command per rank.
base::Result<LabOutcome> run_lab(const LabOptions& options,
                                 const std::vector<RankCommand>& commands,
                                 const std::filesystem::path& state_root = default_state_root());

struct StartedLab {
  LabRecord record;
  std::vector<HostRecord> hosts;
};

base::Result<StartedLab> start_lab(const LabOptions& options,
                                   const std::filesystem::path& state_root = default_state_root());

// Runs a command on these hosts of a running lab, at the same time, and returns the worst exit
// code. With `own_terminal`, the command keeps this process's input and output; give only one host
// then. The calling process moves into the lab's user and mount namespaces for good, so it should
// exit afterwards.
base::Result<int> run_inside(const LabRecord& lab, const std::vector<HostRecord>& hosts,
                             const std::vector<std::string>& command, bool own_terminal);

}  // namespace spillway::lab
