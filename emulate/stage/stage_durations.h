// SPDX-License-Identifier: Apache-2.0
//
// How long communication in a staged world takes (stage.h) once all participants have arrived. One
// thread.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "emulate/trace/node.h"

namespace spillway::emulate {

struct StagedCollective {
  const std::vector<std::uint32_t>& ranks;  // ascending, at least two
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::uint64_t bytes = 0;  // as in a trace's node (chakra/node.h)
  std::uint32_t root = 0;   // a rank of the world, if the collective has a root
  // Its predecessor in the group had not ended when its last member arrived.
  bool is_behind = false;
};

// The properties of a collective that determine its cost.
struct CollectiveShape {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::uint32_t ranks = 0;   // of the group
  std::uint32_t stride = 1;  // distance between its ranks
  std::uint64_t bytes = 0;   // as in a trace's node

  friend auto operator<=>(const CollectiveShape&, const CollectiveShape&) = default;
};

// The distance between neighbouring ranks: 0 if it is not constant, 1 for a single rank.
inline std::uint32_t stride_of(const std::vector<std::uint32_t>& ranks) {
  const std::uint32_t stride = ranks.size() < 2 ? 1 : ranks[1] - ranks[0];
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    if (ranks[i] - ranks[i - 1] != stride) {
      return 0;
    }
  }
  return stride;
}

class StageDurations {
 public:
  virtual ~StageDurations() = default;

  // Fails with an explanation if the duration is unknown.
  virtual base::Result<base::Duration> collective(const StagedCollective& collective) = 0;
  virtual base::Result<base::Duration> message(std::uint32_t from, std::uint32_t to,
                                               std::uint64_t bytes) = 0;
};

}  // namespace spillway::emulate
