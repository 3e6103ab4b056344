// SPDX-License-Identifier: Apache-2.0
#include "emulate/stage/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <thread>

#include "base/clock.h"
#include "emulate/replay/replay_groups.h"
#include "emulate/stage/flow_durations.h"

namespace spillway::emulate {
namespace {

using collective::DataType;
using collective::Kind;

collective::Kind library_kind(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return Kind::kAllReduce;
    case CollectiveKind::kReduce:
      return Kind::kReduce;
    case CollectiveKind::kAllGather:
      return Kind::kAllGather;
    case CollectiveKind::kGather:
      return Kind::kGather;
    case CollectiveKind::kScatter:
      return Kind::kScatter;
    case CollectiveKind::kBroadcast:
      return Kind::kBroadcast;
    case CollectiveKind::kAllToAll:
      return Kind::kAllToAll;
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kReduceScatterBlock:
      return Kind::kReduceScatter;
    case CollectiveKind::kBarrier:
      break;
  }
  return Kind::kBarrier;
}

// Of one kind and size, with the memory that it reads and writes.
class Measured {
 public:
  Measured(const CalibratedShape& shape, const ReplayGroups::Member& member) {
    operation_.kind = library_kind(shape.kind);
    const bool adds = operation_.kind == Kind::kAllReduce || operation_.kind == Kind::kReduce ||
                      operation_.kind == Kind::kReduceScatter;
    const bool is_whole = operation_.kind == Kind::kReduceScatter ||
                          operation_.kind == Kind::kAllToAll || operation_.kind == Kind::kScatter;
    const std::uint64_t part = is_whole ? shape.bytes / shape.ranks : shape.bytes;
    operation_.type = adds ? DataType::kFloat32 : DataType::kUint8;
    operation_.count = operation_.kind == Kind::kBarrier
                           ? 0
                           : std::max<std::uint64_t>(1, part / (adds ? sizeof(float) : 1));
    const collective::Group group{member.rank, member.size};
    input_.resize(collective::input_bytes(operation_, group));
    output_.resize(collective::output_bytes(operation_, group));
    operation_.input = input_.empty() ? nullptr : input_.data();
    operation_.output = output_.empty() ? nullptr : output_.data();
  }
  const collective::Operation& operation() const { return operation_; }

 private:
  collective::Operation operation_;
  std::vector<std::byte> input_;
  std::vector<std::byte> output_;
};

base::Status do_one(runtime::Communicator& everybody, collective::Operation operation,
                    base::Duration patience) {
  operation.timeout = patience;
  const base::Result<std::shared_ptr<runtime::Request>> request = everybody.submit(operation);
  if (!request.ok()) {
    return request.status();
  }
  return (*request)->wait(std::nullopt).value_or(base::Status());
}

base::Status meet(runtime::Communicator& everybody, base::Duration patience) {
  collective::Operation barrier;
  barrier.kind = Kind::kBarrier;
  return do_one(everybody, barrier, patience);
}

// Of each time that it is done, what it takes here.
base::Result<std::vector<double>> times_ns(runtime::Communicator& everybody,
                                           runtime::Communicator& group, const Measured& measured,
                                           const CalibrationOptions& options) {
  const base::MonotonicClock clock;
  std::vector<double> times;
  for (std::uint32_t i = 0; i <= options.repeats; ++i) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(options.rest.count()));
    base::Status status = meet(everybody, options.patience);
    const base::Instant began = clock.now();
    if (status.ok()) {
      status = do_one(group, measured.operation(), options.patience);
    }
    if (!status.ok()) {
      return status;
    }
    if (i > 0) {  // the first finds memory and paths
      times.push_back(static_cast<double>((clock.now() - began).count()));
    }
  }
  return times;
}

// Each time at the rank that took longest.
base::Status take_longest(runtime::Communicator& everybody, std::vector<double>& times,
                          base::Duration patience) {
  collective::Operation operation;
  operation.kind = Kind::kAllReduce;
  operation.type = DataType::kFloat64;
  operation.op = collective::ReduceOp::kMax;
  operation.count = times.size();
  operation.input = times.data();
  operation.output = times.data();
  return do_one(everybody, operation, patience);
}

base::Result<MeasuredRow> measure(runtime::Communicator& everybody,
                                  const ReplayGroups::Member& member, const CalibratedShape& shape,
                                  const CalibrationOptions& options) {
  const Measured measured(shape, member);
  base::Result<std::vector<double>> times =
      times_ns(everybody, *member.communicator, measured, options);
  base::Status status = times.status();
  if (times.ok()) {
    status = take_longest(everybody, times.value(), options.patience);
  }
  if (!status.ok()) {
    return base::Status(status.code(),
                        fmt::format("{} of {} bytes: {}", collective_kind_name(shape.kind),
                                    shape.bytes, status.message()));
  }
  std::vector<double>& all = times.value();
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::nth_element(all.begin(), middle, all.end());
  return MeasuredRow{shape.kind, shape.ranks, shape.stride, shape.bytes,
                     base::nanoseconds(static_cast<std::int64_t>(*middle))};
}

using Pattern = std::pair<std::uint32_t, std::uint32_t>;  // ranks and stride

// A world in which each rank uses its group of every division, and which group that is.
base::Result<World> world_of_divisions(const CalibrationOptions& options, std::uint32_t size,
                                       std::uint32_t rank,
                                       std::map<Pattern, std::uint32_t>& own_group) {
  World world;
  world.ranks.resize(size);
  world.has_trace.resize(size, true);
  world.groups.push_back({"", {}});
  for (std::uint32_t each = 0; each < size; ++each) {
    world.groups[0].ranks.push_back(each);
  }
  for (const CalibratedShape& shape : options.shapes) {
    const Pattern pattern(shape.ranks, shape.stride);
    const std::uint64_t block = std::uint64_t{shape.ranks} * shape.stride;
    if (shape.ranks < 2 || block == 0 || size % block != 0) {
      return base::invalid_argument(
          fmt::format("{} ranks cannot be divided into groups of {}, {} apart", size, shape.ranks,
                      shape.stride));
    }
    if (own_group.contains(pattern)) {
      continue;
    }
    std::vector<std::uint32_t> first;
    for (std::uint32_t i = 0; i < shape.ranks; ++i) {
      first.push_back(i * shape.stride);
    }
    for (const std::vector<std::uint32_t>& ranks : sister_groups(first, size)) {
      const bool is_all = ranks.size() == size;
      const auto index = is_all ? 0U : static_cast<std::uint32_t>(world.groups.size());
      if (!is_all) {
        world.groups.push_back({fmt::format("{}/{}", shape.ranks, shape.stride), ranks});
      }
      if (std::binary_search(ranks.begin(), ranks.end(), rank)) {
        own_group[pattern] = index;
        GraphNode node;
        node.kind = NodeKind::kCollective;
        node.group = index;
        node.has_collective = node.has_bytes = true;
        world.ranks[rank].nodes.push_back(node);
      }
    }
  }
  return world;
}

}  // namespace

base::Result<MeasuredTable> calibrate(runtime::Communicator& everybody,
                                      const CalibrationOptions& options) {
  std::map<Pattern, std::uint32_t> own_group;
  const base::Result<World> world =
      world_of_divisions(options, everybody.world(), everybody.rank(), own_group);
  if (!world.ok()) {
    return world.status();
  }
  const base::Result<ReplayGroups> groups = ReplayGroups::make(*world, everybody, options.patience);
  if (!groups.ok()) {
    return groups.status();
  }
  MeasuredTable table;
  for (const CalibratedShape& shape : options.shapes) {
    const ReplayGroups::Member member = groups->member(own_group.at({shape.ranks, shape.stride}));
    const base::Result<MeasuredRow> row = measure(everybody, member, shape, options);
    if (!row.ok()) {
      return row.status();
    }
    table.rows.push_back(*row);
    if (options.on_row) {
      options.on_row(*row);
    }
  }
  return table;
}

}  // namespace spillway::emulate
