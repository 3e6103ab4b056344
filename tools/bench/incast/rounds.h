// SPDX-License-Identifier: Apache-2.0
//
// Rounds of an incast: in every round all flows of a scenario's job start at once, and the round
// ends when the last one has arrived. Measured between real processes in a lab, one protocol at a
// time, and predicted by the simulator from the same scenario.
//
// Blocking; throws CommandError, or CommandExit with the exit code of a rank that failed. One
// thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/clock.h"
#include "lab/launcher.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/workload.h"
#include "tools/bench/incast/carriers.h"

namespace spillway::bench {

// ------------------------------------------------------------------ the rounds

// Time that the busiest host's link needs for all bytes, without headers.
base::Duration ideal_incast_time(const scenario::Scenario& scenario,
                                 const std::vector<scenario::Flow>& flows);

// Times of one protocol, and totals over the messages of all rounds.
struct IncastTimes {
  std::string protocol;
  base::DurationSummary rounds;
  std::uint64_t messages = 0;
  std::uint64_t beyond_bound = 0;
  std::uint64_t packets = 0;
  std::uint64_t delivered = 0;
  std::uint64_t trimmed = 0;
  lab::Pace pace;  // whether the lab was on time
};

// Runs this command on every host of the lab, with `--as-rank PROTOCOL --rank-folder FOLDER`
// appended (run_incast_rank).
IncastTimes measure_incast(const lab::LabOptions& lab_options, std::size_t flows,
                           const std::string& protocol, std::uint32_t rounds);

// Simulates the scenario's first job, with another seed in each round.
base::DurationSummary simulate_incast(scenario::Scenario scenario, std::uint32_t rounds);

// ------------------------------------------------------------------ the program of a rank

// The program of each rank of `spillway bench incast` inside the lab: rounds of the same flows,
// coordinated by a RankMeeting. Rank 0 writes all ranks' results into the folder they share.

struct IncastRankOptions {
  std::string protocol;  // "spillway", or a TCP congestion control
  std::uint32_t rounds = 0;
  std::filesystem::path folder;
};

// The flows of the scenario's first job, numbered by position. Throws CommandError if some of them
// wait for others: a round starts all flows at once.
std::vector<scenario::Flow> flows_of(const scenario::Scenario& scenario);

// Finds its rank and peers in the environment that lab/rank_environment.h sets.
void run_incast_rank(const scenario::Scenario& scenario, const IncastRankOptions& options);

// Reads what rank 0 wrote: one list per round.
std::vector<std::vector<FlowOutcome>> read_rounds(const std::filesystem::path& folder,
                                                  std::size_t flows);

}  // namespace spillway::bench
