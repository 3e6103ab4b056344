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

bool has_root(CollectiveKind kind) {
  return kind == CollectiveKind::kReduce || kind == CollectiveKind::kGather ||
         kind == CollectiveKind::kScatter || kind == CollectiveKind::kBroadcast;
}

// Of one kind and size, with memory for all it may read and write.
class Measured {
 public:
  Measured(CollectiveKind kind, std::uint64_t bytes, std::uint32_t world)
      : input_(bytes + kRoom), output_(bytes * world + kRoom) {
    operation_.kind = library_kind(kind);
    const bool adds = operation_.kind == Kind::kAllReduce || operation_.kind == Kind::kReduce ||
                      operation_.kind == Kind::kReduceScatter;
    const bool is_whole = operation_.kind == Kind::kReduceScatter ||
                          operation_.kind == Kind::kAllToAll || operation_.kind == Kind::kScatter;
    const std::uint64_t part = is_whole ? bytes / world : bytes;
    operation_.type = adds ? DataType::kFloat32 : DataType::kUint8;
    operation_.count = operation_.kind == Kind::kBarrier
                           ? 0
                           : std::max<std::uint64_t>(1, part / (adds ? sizeof(float) : 1));
    operation_.input = input_.data();
    operation_.output = output_.data();
  }
  const collective::Operation& operation() const { return operation_; }

 private:
  static constexpr std::size_t kRoom = 65'536;  // parts are rounded up to an element
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

base::Result<double> median_ns(runtime::Communicator& everybody, runtime::Communicator& group,
                               const Measured& measured, const CalibrationOptions& options) {
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
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

// Of all ranks: their mean, or the most of them.
base::Result<double> together(runtime::Communicator& everybody, double own, bool most,
                              base::Duration patience) {
  double sum = 0.0;
  collective::Operation operation;
  operation.kind = Kind::kAllReduce;
  operation.type = DataType::kFloat64;
  operation.op = most ? collective::ReduceOp::kMax : collective::ReduceOp::kSum;
  operation.count = 1;
  operation.input = &own;
  operation.output = &sum;
  if (base::Status status = do_one(everybody, operation, patience); !status.ok()) {
    return status;
  }
  return most ? sum : sum / everybody.world();
}

base::Result<MeasuredRow> measure(runtime::Communicator& everybody,
                                  const ReplayGroups::Member& member, const CalibratedShape& shape,
                                  const CalibrationOptions& options) {
  const Measured measured(shape.kind, shape.bytes, shape.ranks);
  const base::Result<double> own = median_ns(everybody, *member.communicator, measured, options);
  if (!own.ok()) {
    return base::Status(own.status().code(),
                        fmt::format("{} of {} bytes: {}", collective_kind_name(shape.kind),
                                    shape.bytes, own.status().message()));
  }
  const base::Result<double> all =
      together(everybody, *own, has_root(shape.kind), options.patience);
  if (!all.ok()) {
    return all.status();
  }
  return MeasuredRow{shape.kind, shape.ranks, shape.stride, shape.bytes,
                     base::nanoseconds(static_cast<std::int64_t>(*all))};
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
