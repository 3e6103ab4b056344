// SPDX-License-Identifier: Apache-2.0
//
// How long communication of a staged world takes (stage.h) once all who take part have come. One
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
  std::uint64_t bytes = 0;  // as of a trace's node (chakra/node.h)
  std::uint32_t root = 0;   // a rank of the world, where the collective has one
  // The one before it in its group had not ended when its last member came.
  bool is_behind = false;
};

// What of a collective matters to its costs.
struct CollectiveShape {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::uint32_t ranks = 0;   // of the group,
  std::uint32_t stride = 1;  // so far apart
  std::uint64_t bytes = 0;   // as of a trace's node

  friend auto operator<=>(const CollectiveShape&, const CollectiveShape&) = default;
};

// How far apart ranks are, all by the same; 0 where they are not, 1 of one alone.
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

  // What it cannot tell is an error with the sentence.
  virtual base::Result<base::Duration> collective(const StagedCollective& collective) = 0;
  virtual base::Result<base::Duration> message(std::uint32_t from, std::uint32_t to,
                                               std::uint64_t bytes) = 0;
};

}  // namespace spillway::emulate
