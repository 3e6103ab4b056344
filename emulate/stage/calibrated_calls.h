// SPDX-License-Identifier: Apache-2.0
//
// Collectives for the measurements of calibration.h and calibrated_memory.h. Each has a shape, its
// own memory, and this rank's group in the shape's division of the world.
//
// All ranks call the same functions in the same order. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "comm/communicator.h"
#include "emulate/replay/replay_groups.h"
#include "emulate/stage/stage_durations.h"
#include "emulate/trace/graph.h"

namespace spillway::emulate {

std::vector<std::uint32_t> ranks_below(std::uint32_t size);

// An operation of a shape, with the memory that it reads and writes.
class ShapedOperation {
 public:
  ShapedOperation(const CollectiveShape& shape, const ReplayGroups::Member& member);

  const collective::Operation& operation() const { return operation_; }
  std::uint64_t bytes() const { return input_.size() + output_.size(); }

 private:
  collective::Operation operation_;
  std::vector<std::byte> input_;
  std::vector<std::byte> output_;
};

using Calls = std::vector<std::pair<runtime::Communicator*, collective::Operation>>;

// Starts all calls at once and returns when all have ended.
base::Status carry_out(const Calls& calls, base::Duration patience);
// A barrier.
base::Status meet(runtime::Communicator& everybody, base::Duration patience);
// Replaces each number by its maximum over all ranks.
base::Status take_most(runtime::Communicator& everybody, std::vector<double>& numbers,
                       base::Duration patience);

// This rank's group in every division of the world that the shapes need.
struct Divisions {
  using Pattern = std::pair<std::uint32_t, std::uint32_t>;  // ranks and stride

  World world;  // a trace in which the ranks call these groups
  std::map<Pattern, std::uint32_t> own_group;
};

// Each group has its own communicator; with `shares_all`, a group of all ranks uses the world's.
// Groups contain only ranks of `among`, which is ascending.
base::Result<Divisions> divisions_of(const std::vector<CollectiveShape>& shapes,
                                     const runtime::Communicator& everybody,
                                     const std::vector<std::uint32_t>& among, bool shares_all);

}  // namespace spillway::emulate
