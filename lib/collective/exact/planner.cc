// SPDX-License-Identifier: Apache-2.0
#include "collective/exact/planner.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "collective/exact/plan.h"

namespace spillway::collective {
namespace {

constexpr std::size_t kSmallShard = 4 * 1024;
constexpr std::size_t kSmallMessage = 64 * 1024;
constexpr std::size_t kLargeTensor = 1024 * 1024;
constexpr unsigned kTreeWorld = 32;  // up to here two hops of many messages beat many hops
constexpr unsigned kManyRanks = 64;  // beyond, each with each is too many messages
constexpr std::size_t kLargestElement = 8;

bool has_levels(const Group& group, const PlanOptions& options) {
  return !level_factors(group, options).empty();
}

Algorithm automatic(const Operation& operation, const Group& group, const PlanOptions& options) {
  const std::size_t bytes = operation.bytes();
  switch (operation.kind) {
    case Kind::kAllReduce:
      if (group.world > kTreeWorld && bytes / group.world < kSmallShard) {
        return Algorithm::kTree;
      }
      if (bytes >= kLargeTensor && has_levels(group, options) &&
          (has_near_ranks(group, options) || group.world > kManyRanks)) {
        return Algorithm::kHierarchical;
      }
      return Algorithm::kDirect;
    case Kind::kReduce:
      return bytes < kSmallMessage ? Algorithm::kTree : Algorithm::kDirect;
    case Kind::kBroadcast:
      return bytes < kSmallMessage || group.world == 2 ? Algorithm::kTree : Algorithm::kRing;
    case Kind::kAllGather:
      return group.world > kManyRanks && bytes >= kSmallMessage ? Algorithm::kRing
                                                                : Algorithm::kDirect;
    default:
      return Algorithm::kDirect;
  }
}

// True if the operation has a plan for its algorithm.
bool has_algorithm(const Operation& operation, const Group& group, const PlanOptions& options) {
  const Algorithm algorithm = operation.algorithm;
  if (algorithm == Algorithm::kServers) {
    return false;  // decided by the group, not by the caller
  }
  if (algorithm == Algorithm::kHierarchical) {
    return operation.kind == Kind::kAllReduce && has_levels(group, options);
  }
  switch (operation.kind) {
    case Kind::kAllReduce:
      return true;
    case Kind::kReduce:
      return algorithm != Algorithm::kRing;
    case Kind::kBroadcast:
      return algorithm != Algorithm::kDirect;
    case Kind::kReduceScatter:
    case Kind::kAllGather:
      return algorithm != Algorithm::kTree;
    default:
      return algorithm == Algorithm::kDirect;
  }
}

Plan plan_reduction(const PlanTask& task, Algorithm algorithm) {
  switch (task.operation.kind) {
    case Kind::kAllReduce:
      return algorithm == Algorithm::kRing           ? plan_ring_all_reduce(task)
             : algorithm == Algorithm::kTree         ? plan_tree_all_reduce(task)
             : algorithm == Algorithm::kHierarchical ? plan_hierarchical_all_reduce(task)
                                                     : plan_direct_all_reduce(task);
    case Kind::kReduceScatter:
      return algorithm == Algorithm::kRing ? plan_ring_reduce_scatter(task)
                                           : plan_direct_reduce_scatter(task);
    default:
      return algorithm == Algorithm::kTree ? plan_tree_reduce(task) : plan_direct_reduce(task);
  }
}

// A world of one: the input is the output.
Plan plan_alone(const PlanTask& task) {
  PlanBuilder plan(task.options.window);
  const std::size_t bytes =
      std::min(input_bytes(task.operation, task.group), output_bytes(task.operation, task.group));
  plan.copy({Region::kOutput, 0, bytes}, {Region::kInput, 0, bytes});
  return plan.finish(Algorithm::kDirect);
}

}  // namespace

std::size_t piece_size(std::size_t bytes, std::size_t element_bytes, std::size_t wanted,
                       const PlanOptions& options, std::size_t most_pieces) {
  const std::size_t elements = (bytes + element_bytes - 1) / element_bytes;
  const std::size_t least = (elements + most_pieces - 1) / most_pieces;
  const std::size_t longest = options.max_message_bytes / element_bytes;
  return element_bytes *
         std::clamp<std::size_t>(std::max(wanted / element_bytes, least), 1, longest);
}

std::size_t pipelined_piece_bytes(std::size_t shard_bytes, std::size_t least, std::size_t most) {
  constexpr std::size_t kPieces = 12;
  return std::clamp(shard_bytes / kPieces, std::min(least, most), most);
}

// Checks the run that is cut into most pieces. In a ring that is the whole of it, because all
// ranks' pieces are numbered together.
base::Status check_size(const Operation& operation, const Group& group,
                        const PlanOptions& options) {
  const std::size_t all = std::max(input_bytes(operation, group), output_bytes(operation, group));
  const std::size_t most =
      options.max_message_bytes / kLargestElement * kLargestElement * (kMaxParts - group.world);
  if (std::max(all, operation.bytes()) <= most) {
    return {};
  }
  return base::invalid_argument(
      fmt::format("{}: {} bytes are more than the {} that the packets of one operation can number; "
                  "split it",
                  describe(operation), std::max(all, operation.bytes()), most));
}

Algorithm choose_algorithm(const Operation& operation, const Group& group,
                           const PlanOptions& options) {
  if (uses_servers(operation, group)) {
    return Algorithm::kServers;
  }
  const Group workers = group.among_workers();
  const bool is_chosen =
      operation.algorithm != Algorithm::kAutomatic && has_algorithm(operation, workers, options);
  return is_chosen ? operation.algorithm : automatic(operation, workers, options);
}

Plan make_plan(const Operation& operation, const Group& group, const PlanOptions& options,
               const Shares& shares) {
  if (uses_servers(operation, group)) {
    return plan_servers_all_reduce({operation, group, options, shares});
  }
  const PlanTask task{operation, group.among_workers(), options, shares};
  if (task.group.world == 1) {
    return plan_alone(task);
  }
  const Algorithm algorithm = choose_algorithm(operation, group, options);
  switch (operation.kind) {
    case Kind::kAllReduce:
    case Kind::kReduceScatter:
    case Kind::kReduce:
      return plan_reduction(task, algorithm);
    case Kind::kAllGather:
      return algorithm == Algorithm::kRing ? plan_ring_all_gather(task)
                                           : plan_direct_all_gather(task);
    case Kind::kBroadcast:
      return algorithm == Algorithm::kTree ? plan_tree_broadcast(task) : plan_chain_broadcast(task);
    case Kind::kGather:
      return plan_gather(task);
    case Kind::kScatter:
      return plan_scatter(task);
    case Kind::kAllToAll:
      return plan_all_to_all(task);
    case Kind::kBarrier:
      return plan_barrier(task);
    case Kind::kSend:
    case Kind::kReceive:
      return plan_point_to_point(task);
  }
  SPILLWAY_CHECK(false);
}

}  // namespace spillway::collective
