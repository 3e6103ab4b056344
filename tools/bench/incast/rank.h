// SPDX-License-Identifier: Apache-2.0
//
// The program of each rank of `spillway bench incast` inside the lab: rounds of the same flows,
// coordinated by a RankMeeting. Rank 0 writes all ranks' results into the folder they share.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "sim/scenario/scenario.h"
#include "tools/bench/incast/flow_carrier.h"

namespace spillway::bench {

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
