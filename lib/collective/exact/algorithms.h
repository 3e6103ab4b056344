// SPDX-License-Identifier: Apache-2.0
//
// The algorithms, one function each: the plan of what rank `group.rank` does. Called through
// make_plan(), which picks one.
#pragma once

#include "collective/exact/planner.h"

namespace spillway::collective {

// The input for making a plan. Valid during the call.
struct PlanTask {
  const Operation& operation;
  Group group;  // the workers alone, except where servers take part
  const PlanOptions& options;
  const Shares& shares;  // of the ranks, in a direct all-reduce

  std::size_t element_bytes() const { return element_size(operation.type); }
  // Piece sizes for a run of so many bytes: for pieces that are added up, and for others.
  std::size_t piece_bytes(std::size_t bytes) const {
    return piece_size(bytes, element_bytes(), options.piece_bytes, options, options.most_pieces);
  }
  std::size_t message_bytes(std::size_t bytes) const {
    return piece_size(bytes, element_bytes(), options.message_bytes, options, options.most_pieces);
  }
};

// Every rank owns a shard: it collects the others' parts of it, adds them up, and hands out the
// sum.
Plan plan_direct_all_reduce(const PlanTask& task);
Plan plan_direct_reduce_scatter(const PlanTask& task);
Plan plan_direct_all_gather(const PlanTask& task);
Plan plan_direct_reduce(const PlanTask& task);

// The same within racks, and between them; task.options.rack_ranks must fit.
Plan plan_levels_all_reduce(const PlanTask& task);

// The same with parameter servers that own the shards.
Plan plan_servers_all_reduce(const PlanTask& task);

// Neighbour to neighbour.
Plan plan_ring_all_reduce(const PlanTask& task);
Plan plan_ring_reduce_scatter(const PlanTask& task);
Plan plan_ring_all_gather(const PlanTask& task);
Plan plan_chain_broadcast(const PlanTask& task);

// Along a binomial tree.
Plan plan_tree_all_reduce(const PlanTask& task);
Plan plan_tree_reduce(const PlanTask& task);
Plan plan_tree_broadcast(const PlanTask& task);

// From each rank to each, once.
Plan plan_gather(const PlanTask& task);
Plan plan_scatter(const PlanTask& task);
Plan plan_all_to_all(const PlanTask& task);
Plan plan_point_to_point(const PlanTask& task);
// One-byte messages from each rank to each; among more than 64 ranks, rounds of them to the rank 1,
// 2, 4, ... places on.
Plan plan_barrier(const PlanTask& task);

}  // namespace spillway::collective
