// SPDX-License-Identifier: Apache-2.0
//
// How long communication of a staged world takes (stage.h) once all who take part have come. One
// thread.
#pragma once

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
};

class StageDurations {
 public:
  virtual ~StageDurations() = default;

  // What it cannot tell is an error with the sentence.
  virtual base::Result<base::Duration> collective(const StagedCollective& collective) = 0;
  virtual base::Result<base::Duration> message(std::uint32_t from, std::uint32_t to,
                                               std::uint64_t bytes) = 0;
};

}  // namespace spillway::emulate
