// SPDX-License-Identifier: Apache-2.0
#include "emulate/stage/calibrated_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <numeric>

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

}  // namespace

std::vector<std::uint32_t> ranks_below(std::uint32_t size) {
  std::vector<std::uint32_t> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0U);
  return ranks;
}

ShapedOperation::ShapedOperation(const CollectiveShape& shape, const ReplayGroups::Member& member) {
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

base::Status carry_out(const Calls& calls, base::Duration patience) {
  std::vector<std::shared_ptr<runtime::Request>> requests;
  base::Status status;
  for (auto [communicator, operation] : calls) {
    operation.timeout = patience;
    base::Result<std::shared_ptr<runtime::Request>> request = communicator->submit(operation);
    if (!request.ok()) {
      status = request.status();
      break;
    }
    requests.push_back(std::move(request).value());
  }
  for (const std::shared_ptr<runtime::Request>& request : requests) {
    const base::Status ended = request->wait(std::nullopt).value_or(base::Status());
    status = status.ok() ? ended : status;
  }
  return status;
}

base::Status meet(runtime::Communicator& everybody, base::Duration patience) {
  collective::Operation barrier;
  barrier.kind = Kind::kBarrier;
  return carry_out({{&everybody, barrier}}, patience);
}

base::Status take_most(runtime::Communicator& everybody, std::vector<double>& numbers,
                       base::Duration patience) {
  collective::Operation operation;
  operation.kind = Kind::kAllReduce;
  operation.type = DataType::kFloat64;
  operation.op = collective::ReduceOp::kMax;
  operation.count = numbers.size();
  operation.input = numbers.data();
  operation.output = numbers.data();
  return carry_out({{&everybody, operation}}, patience);
}

base::Result<Divisions> divisions_of(const std::vector<CollectiveShape>& shapes,
                                     const runtime::Communicator& everybody,
                                     const std::vector<std::uint32_t>& among, bool shares_all) {
  Divisions made;
  World& world = made.world;
  const std::uint32_t size = everybody.world();
  const std::uint32_t rank = everybody.rank();
  world.ranks.resize(size);
  world.has_trace.resize(size, true);
  world.groups.push_back({"", ranks_below(size)});
  for (const CollectiveShape& shape : shapes) {
    const Divisions::Pattern pattern(shape.ranks, shape.stride);
    const std::uint64_t block = std::uint64_t{shape.ranks} * shape.stride;
    if (shape.ranks < 2 || block == 0 || size % block != 0) {
      return base::invalid_argument(
          fmt::format("{} ranks cannot be divided into groups of {}, {} apart", size, shape.ranks,
                      shape.stride));
    }
    if (made.own_group.contains(pattern)) {
      continue;
    }
    std::vector<std::uint32_t> first;
    for (std::uint32_t i = 0; i < shape.ranks; ++i) {
      first.push_back(i * shape.stride);
    }
    for (const std::vector<std::uint32_t>& whole : sister_groups(first, size)) {
      std::vector<std::uint32_t> ranks;
      std::set_intersection(whole.begin(), whole.end(), among.begin(), among.end(),
                            std::back_inserter(ranks));
      const bool is_everybody = shares_all && ranks.size() == size;
      const auto index = is_everybody ? 0U : static_cast<std::uint32_t>(world.groups.size());
      if (!is_everybody) {
        world.groups.push_back({fmt::format("{}/{}", shape.ranks, shape.stride), ranks});
      }
      if (std::binary_search(ranks.begin(), ranks.end(), rank)) {
        made.own_group[pattern] = index;
        GraphNode node;
        node.kind = NodeKind::kCollective;
        node.group = index;
        node.has_collective = node.has_bytes = true;
        world.ranks[rank].nodes.push_back(node);
      }
    }
  }
  return made;
}

}  // namespace spillway::emulate
