// SPDX-License-Identifier: Apache-2.0
//
// Collectives as they are called to be measured (calibration.h, calibrated_memory.h): of a shape,
// with memory of their own, in the group of this rank that the shape divides the world into.
//
// All ranks call the same, in the same order. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "emulate/replay/replay_groups.h"
#include "emulate/stage/stage_durations.h"
#include "emulate/trace/graph.h"
#include "runtime/communicator.h"

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

// All at once; returns when all have ended.
base::Status carry_out(const Calls& calls, base::Duration patience);
// A barrier.
base::Status meet(runtime::Communicator& everybody, base::Duration patience);
// Each number at the rank where it is largest.
base::Status take_most(runtime::Communicator& everybody, std::vector<double>& numbers,
                       base::Duration patience);

// A rank's group of every division of the world that shapes want.
struct Divisions {
  using Pattern = std::pair<std::uint32_t, std::uint32_t>;  // ranks and stride

  World world;  // in which it uses them
  std::map<Pattern, std::uint32_t> own_group;
};

// Groups have a communicator each, but for that of all ranks where `shares_all`; they have only
// those ranks that are in `among`, which is ascending.
base::Result<Divisions> divisions_of(const std::vector<CollectiveShape>& shapes,
                                     const runtime::Communicator& everybody,
                                     const std::vector<std::uint32_t>& among, bool shares_all);

}  // namespace spillway::emulate
