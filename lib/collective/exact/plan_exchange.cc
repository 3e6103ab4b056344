// SPDX-License-Identifier: Apache-2.0
//
// Operations in which every pair of ranks exchanges its own data once, and the barrier.
#include <vector>

#include "collective/exact/algorithms.h"
#include "collective/exact/plan.h"

namespace spillway::collective {
namespace {

using wire::Phase;

Span block(Region region, std::size_t index, std::size_t bytes) {
  return {region, index * bytes, bytes};
}

}  // namespace

Plan plan_gather(const PlanTask& task) {
  const Operation& operation = task.operation;
  const Group& group = task.group;
  const std::size_t bytes = operation.bytes();
  const std::size_t most = task.message_bytes(bytes);
  PlanBuilder plan(task.options.window);
  if (group.rank != operation.root) {
    plan.send_pieces(operation.root, Phase::kGather, {Region::kInput, 0, bytes}, most);
    return plan.finish(Algorithm::kDirect);
  }
  for (std::uint16_t from = 0; from < group.world; ++from) {
    if (from != group.rank) {
      plan.receive_pieces(from, Phase::kGather, block(Region::kOutput, from, bytes), most);
    }
  }
  plan.copy(block(Region::kOutput, group.rank, bytes), {Region::kInput, 0, bytes});
  return plan.finish(Algorithm::kDirect);
}

Plan plan_scatter(const PlanTask& task) {
  const Operation& operation = task.operation;
  const Group& group = task.group;
  const std::size_t bytes = operation.bytes();
  const std::size_t most = task.message_bytes(bytes);
  PlanBuilder plan(task.options.window);
  if (group.rank != operation.root) {
    plan.receive_pieces(operation.root, Phase::kGather, {Region::kOutput, 0, bytes}, most);
    return plan.finish(Algorithm::kDirect);
  }
  for (std::uint16_t to = 0; to < group.world; ++to) {
    if (to != group.rank) {
      plan.send_pieces(to, Phase::kGather, block(Region::kInput, to, bytes), most);
    }
  }
  plan.copy({Region::kOutput, 0, bytes}, block(Region::kInput, group.rank, bytes));
  return plan.finish(Algorithm::kDirect);
}

Plan plan_all_to_all(const PlanTask& task) {
  const Operation& operation = task.operation;
  const Group& group = task.group;
  const std::size_t bytes = operation.bytes();
  const std::size_t most = task.message_bytes(bytes);
  PlanBuilder plan(task.options.window);
  for (unsigned distance = 1; distance < group.world; ++distance) {
    const auto from =
        static_cast<std::uint16_t>((group.rank + group.world - distance) % group.world);
    plan.receive_pieces(from, Phase::kGather, block(Region::kOutput, from, bytes), most);
  }
  for (unsigned distance = 1; distance < group.world; ++distance) {
    const auto to = static_cast<std::uint16_t>((group.rank + distance) % group.world);
    plan.send_pieces(to, Phase::kGather, block(Region::kInput, to, bytes), most);
  }
  plan.copy(block(Region::kOutput, group.rank, bytes), block(Region::kInput, group.rank, bytes));
  return plan.finish(Algorithm::kDirect);
}

Plan plan_point_to_point(const PlanTask& task) {
  const Operation& operation = task.operation;
  const std::size_t bytes = operation.bytes();
  PlanBuilder plan(task.options.pair_window);
  if (operation.kind == Kind::kSend) {
    plan.send_pieces(operation.root, Phase::kPointToPoint, {Region::kInput, 0, bytes},
                     task.message_bytes(bytes));
  } else {
    plan.receive_pieces(operation.root, Phase::kPointToPoint, {Region::kOutput, 0, bytes},
                        task.message_bytes(bytes));
  }
  return plan.finish(Algorithm::kDirect);
}

namespace {

// From each rank to each, so that a missing rank is known by name.
Plan plan_small_barrier(const PlanTask& task) {
  const Group& group = task.group;
  PlanBuilder plan(task.options.window);
  for (std::uint16_t from = 0; from < group.world; ++from) {
    if (from != group.rank) {
      plan.receive(from, Phase::kReduce, 0, plan.scratch(1));
    }
  }
  const Span sign = plan.scratch(1);
  for (unsigned distance = 1; distance < group.world; ++distance) {
    const auto to = static_cast<std::uint16_t>((group.rank + distance) % group.world);
    plan.send(to, Phase::kReduce, 0, sign);
  }
  return plan.finish(Algorithm::kDirect);
}

}  // namespace

Plan plan_barrier(const PlanTask& task) {
  constexpr std::uint16_t kMaxNamed = 64;  // ranks; more would be too many messages
  if (task.group.world <= kMaxNamed) {
    return plan_small_barrier(task);
  }
  const std::uint16_t world = task.group.world;
  const std::uint16_t rank = task.group.rank;
  PlanBuilder plan(task.options.window);
  const Span sign = plan.scratch(1);
  std::vector<StepId> heard;
  for (unsigned distance = 1, round = 0; distance < world; distance *= 2, ++round) {
    const auto to = static_cast<std::uint16_t>((rank + distance) % world);
    const auto from = static_cast<std::uint16_t>((rank + world - distance) % world);
    const StepId came = plan.receive(from, Phase::kReduce, round, plan.scratch(1));
    const StepId told = plan.send(to, Phase::kReduce, round, sign);
    // A rank speaks for all it has heard of, so it sends after it has heard from them.
    for (const StepId earlier : heard) {
      plan.order(earlier, told);
    }
    heard.push_back(came);
  }
  return plan.finish(Algorithm::kDirect);
}

}  // namespace spillway::collective
