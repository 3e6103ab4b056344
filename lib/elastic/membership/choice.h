// SPDX-License-Identifier: Apache-2.0
//
// Chooses what follows a view: which members replace the lost ones, and at which step all continue.
// A pure function of what the driver of a change has gathered. The voters decide whether the choice
// takes effect (member.h).
//
//   places   A parked rank keeps its place. A free place goes to a standby: warm ones first, then
//            in order, newcomers last. If none is left, later ranks move up if shrinking is
//            allowed; otherwise the job ends. Added places come last and take the standbys left
//            over.
//   step     The greatest step that any rank has reached. To begin step s, a rank needs every
//            rank's part of step s - 1. So nothing of that step is missing, and ranks that are
//            behind can receive its state.
//   sources  The ranks that have that state. A request that would leave no source is dropped.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "elastic/membership/terms.h"
#include "elastic/membership/view.h"

namespace spillway::membership {

// A parked member, or a newcomer.
struct Present {
  MemberId id = 0;
  Position position{};
  Handle handle{};
};

struct Findings {
  View view{};                                           // the view to be replaced
  std::vector<Present> present{};                        // newcomers in order of arrival
  std::vector<std::pair<MemberId, std::string>> gone{};  // with the reason: "its connection closed"
  std::vector<Request> requests{};
  std::string otherwise{};  // reason if no member is gone and nothing was requested
  SizeRules size{};
  EpochNonce nonce{};
};

Decision choose(const Findings& findings);

// Why `request` cannot be met with `spares` standbys in reach; empty when it can.
std::string objection(const Request& request, const View& view, std::size_t spares,
                      const SizeRules& size);

}  // namespace spillway::membership
