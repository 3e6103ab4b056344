// SPDX-License-Identifier: Apache-2.0
//
// Where the ranks of a measurement agree when a round begins and rank 0 hears how it went: a Unix
// socket in a folder they share, beside the network that is measured. Blocking; throws CommandError
// when another rank is gone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/units.h"
#include "bench/incast/flow_carrier.h"
#include "net/system_call.h"

namespace spillway::bench {

class RankMeeting {
 public:
  RankMeeting(std::uint16_t rank, std::uint16_t ranks, const std::filesystem::path& folder);

  // Waits until all ranks are here; the same instant for all, a little in the future.
  base::Instant agree_on_start();
  // Tells rank 0, which gets everybody's; the others get nothing.
  std::vector<FlowOutcome> gather(const std::vector<FlowOutcome>& own);

 private:
  void accept_others(const std::filesystem::path& path, std::uint16_t others);
  void join(const std::filesystem::path& path);

  std::uint16_t rank_;
  std::vector<net::UniqueFd> streams_;  // rank 0: to each of the others; else: to rank 0
};

}  // namespace spillway::bench
