// SPDX-License-Identifier: Apache-2.0
//
// Measures how long collectives of a communicator's ranks take, for stage_durations.h, and
// how much memory they take. All ranks call it with the same options.
//
// For groups smaller than the world, all groups of the division run at once, each over its own
// communicator.
//
// Each kind and size runs `repeats` times. Before each, ranks rest for `rest`, as training does
// between its collectives, and barrier at a barrier. The duration is the time from a rank's end of
// the barrier to its end of the collective, at the rank where it is longest: ranks that end early
// wait for that one at the next collective. The table has the mean of the repeats without those
// above twice the median. Then kBackToBack calls start at once, to measure how much more each takes
// than one alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "comm/communicator.h"
#include "emulate/group_communicators.h"
#include "emulate/stage/stage_durations.h"
#include "emulate/trace/graph.h"

namespace spillway::emulate {

struct CalibrationOptions {
  std::vector<CollectiveShape> shapes;  // of groups that divide the world
  std::uint32_t repeats = 9;
  base::Duration rest = base::milliseconds(5);
  base::Duration patience = base::seconds(60);
  // Called for each row once it is measured; may be empty.
  std::function<void(const MeasuredRow&)> on_row;
};

inline constexpr std::uint32_t kBackToBack = 4;

base::Result<MeasuredTable> calibrate(comm::Communicator& all_ranks,
                                      const CalibrationOptions& options);

// Collectives for the measurements of durations and memory. Each has a shape, its
// own memory, and this rank's group in the shape's division of the world.
//
// All ranks call the same functions in the same order. One thread.

std::vector<std::uint32_t> ranks_below(std::uint32_t size);

// An operation of a shape, with the memory that it reads and writes.
class ShapedOperation {
 public:
  ShapedOperation(const CollectiveShape& shape, const GroupCommunicators::Membership& member);

  const collective::Operation& operation() const { return operation_; }
  std::uint64_t bytes() const { return input_.size() + output_.size(); }

 private:
  collective::Operation operation_;
  std::vector<std::byte> input_;
  std::vector<std::byte> output_;
};

using Calls = std::vector<std::pair<comm::Communicator*, collective::Operation>>;

// Starts all calls at once and returns when all have ended.
base::Status run_calls(const Calls& calls, base::Duration patience);
// A barrier.
base::Status barrier(comm::Communicator& all_ranks, base::Duration patience);
// Replaces each number by its maximum over all ranks.
base::Status max_over_ranks(comm::Communicator& all_ranks, std::vector<double>& numbers,
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
                                     const comm::Communicator& all_ranks,
                                     const std::vector<std::uint32_t>& among, bool shares_all);

// Measures how much more memory the library holds at a real rank if all ranks of the world are real
// than if only a few are. A staged rank holds that much itself (stage_durations.h).
//
// It measures a process's peak resident memory, without what it had before and without the buffers
// of the collectives. It does so once with communicators among the real ranks, and once among all.
// The result is the difference at the rank where it is largest. All ranks call it with the same
// options.

struct MemoryOptions {
  std::vector<CollectiveShape> at_once{};  // operations under way, in groups that divide the world
  std::vector<std::uint32_t> real{};       // ascending
  base::Duration patience = base::seconds(60);
};

base::Result<MeasuredMemory> measure_memory(comm::Communicator& all_ranks,
                                            const MemoryOptions& options);

}  // namespace spillway::emulate
