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
#include <string>
#include <vector>

#include "base/duration_summary.h"
#include "lab/lab_options.h"
#include "sim/scenario/workload.h"

namespace spillway::bench {

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
// appended (bench/incast/rank.h).
IncastTimes measure_incast(const lab::LabOptions& lab_options, std::size_t flows,
                           const std::string& protocol, std::uint32_t rounds);

// Simulates the scenario's first job, with another seed in each round.
base::DurationSummary simulate_incast(scenario::Scenario scenario, std::uint32_t rounds);

}  // namespace spillway::bench
