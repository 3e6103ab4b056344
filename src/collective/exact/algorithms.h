// SPDX-License-Identifier: Apache-2.0
//
// The algorithms, one function each: what the rank `group.rank` does, as a plan. Called through
// make_plan(), which picks one.
#pragma once

#include "collective/exact/planner.h"

namespace spillway::collective {

// What a plan is made for. Lasts for the call.
struct PlanTask {
  const Operation& operation;
  Group group;  // the workers alone, but where servers take part
  const PlanOptions& options;
  const Shares& shares;  // of the ranks, in a direct all-reduce

  std::size_t element_bytes() const { return element_size(operation.type); }
  // Of pieces of a run of so many bytes: where they are added up, and where they are not.
  std::size_t piece_bytes(std::size_t bytes) const {
    return piece_size(bytes, element_bytes(), options.piece_bytes, options, options.most_pieces);
  }
  std::size_t message_bytes(std::size_t bytes) const {
    return piece_size(bytes, element_bytes(), options.message_bytes, options, options.most_pieces);
  }
};

// Every rank owns a shard: it collects the others' part of it, adds up, and hands out the sum.
Plan plan_direct_all_reduce(const PlanTask& task);
Plan plan_direct_reduce_scatter(const PlanTask& task);
Plan plan_direct_all_gather(const PlanTask& task);
Plan plan_direct_reduce(const PlanTask& task);

// The same in racks, and between them; task.options.rack_ranks fits.
Plan plan_levels_all_reduce(const PlanTask& task);

// The same where parameter servers own the shards.
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

// From each to each, once.
Plan plan_gather(const PlanTask& task);
Plan plan_scatter(const PlanTask& task);
Plan plan_all_to_all(const PlanTask& task);
Plan plan_point_to_point(const PlanTask& task);
// One-byte messages from each to each; among more than 64 ranks rounds of them, to the rank 1, 2,
// 4, ... places on.
Plan plan_barrier(const PlanTask& task);

}  // namespace spillway::collective
