// SPDX-License-Identifier: Apache-2.0
//
// What shall follow a view: who takes the places of those that are gone, and at which step all go
// on. A pure function of what the driver of a change has gathered; whether it comes to pass is up
// to the voters (member.h).
//
//   places   a rank that stands still keeps its place. A place that is free goes to a standby: warm
//            ones first, then in order, newcomers last. If none is left, the ranks behind move up
//            where shrinking is allowed; else the job ends. New places come last, for whoever is
//            left over.
//   step     the greatest that any rank has reached. To begin step s, a rank needs everybody's part
//            of step s - 1: so nothing of it is missing, and whoever is behind can be given it.
//   sources  the ranks that have it. A request is put aside where it would leave none.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "membership/terms.h"
#include "membership/view.h"

namespace spillway::membership {

// A member that stands still, or a newcomer.
struct Present {
  MemberId id = 0;
  Position position{};
  Handle handle{};
};

struct Findings {
  View view{};                     // that is left
  std::vector<Present> present{};  // newcomers in the order in which they came
  std::vector<std::pair<MemberId, std::string>> gone{};  // and how: "its connection closed"
  std::vector<Request> requests{};
  std::string otherwise{};  // why, where nobody is gone and nothing is asked for
  SizeRules size{};
  EpochNonce nonce{};
};

Decision choose(const Findings& findings);

// Why `request` cannot be met with `spares` standbys in reach; empty when it can.
std::string objection(const Request& request, const View& view, std::size_t spares,
                      const SizeRules& size);

}  // namespace spillway::membership
