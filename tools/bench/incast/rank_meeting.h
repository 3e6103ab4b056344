// SPDX-License-Identifier: Apache-2.0
//
// Lets the ranks of a measurement agree on the start of a round, and rank 0 collect the results.
// Uses a Unix socket in a shared folder, outside the measured network. Blocking; throws
// CommandError when another rank is gone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/units.h"
#include "net/system_call.h"
#include "tools/bench/incast/flow_carrier.h"

namespace spillway::bench {

class RankMeeting {
 public:
  RankMeeting(std::uint16_t rank, std::uint16_t ranks, const std::filesystem::path& folder);

  // Waits until all ranks are here. Returns the same instant to all, slightly in the future.
  base::Instant agree_on_start();
  // Sends the outcomes to rank 0, which returns those of all ranks; other ranks return none.
  std::vector<FlowOutcome> gather(const std::vector<FlowOutcome>& own);

 private:
  void accept_others(const std::filesystem::path& path, std::uint16_t others);
  void join(const std::filesystem::path& path);

  std::uint16_t rank_;
  std::vector<net::UniqueFd> streams_;  // rank 0: to each other rank; others: to rank 0
};

}  // namespace spillway::bench
