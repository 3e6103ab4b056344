// SPDX-License-Identifier: Apache-2.0
#include "elastic/membership/view.h"

#include <algorithm>

namespace spillway::membership {

std::optional<std::uint32_t> View::rank_of(MemberId member) const {
  const auto at = std::ranges::find(ranks, member);
  return at == ranks.end() ? std::nullopt
                           : std::optional(static_cast<std::uint32_t>(at - ranks.begin()));
}

bool View::has(MemberId member) const {
  return rank_of(member).has_value() || std::ranges::find(standbys, member) != standbys.end();
}

}  // namespace spillway::membership
