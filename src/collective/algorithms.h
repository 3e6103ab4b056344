// SPDX-License-Identifier: Apache-2.0
//
// The algorithms, one function each: what the rank `group.rank` does, as a plan. Called through
// make_plan(), which picks one.
#pragma once

#include "collective/planner.h"

namespace spillway::collective {

struct PlanRequest {
  Operation operation;
  Group group;
  PlanOptions options;

  std::size_t element_bytes() const { return element_size(operation.type); }
};

// Every rank owns a shard: it collects the others' part of it, adds up, and hands out the sum.
Plan plan_direct_all_reduce(const PlanRequest& request);
Plan plan_direct_reduce_scatter(const PlanRequest& request);
Plan plan_direct_all_gather(const PlanRequest& request);
Plan plan_direct_reduce(const PlanRequest& request);

// The same where parameter servers own the shards.
Plan plan_servers_all_reduce(const PlanRequest& request);

// Neighbour to neighbour.
Plan plan_ring_all_reduce(const PlanRequest& request);
Plan plan_ring_reduce_scatter(const PlanRequest& request);
Plan plan_ring_all_gather(const PlanRequest& request);
Plan plan_chain_broadcast(const PlanRequest& request);

// Along a binomial tree.
Plan plan_tree_all_reduce(const PlanRequest& request);
Plan plan_tree_reduce(const PlanRequest& request);
Plan plan_tree_broadcast(const PlanRequest& request);

// From each to each, once.
Plan plan_gather(const PlanRequest& request);
Plan plan_scatter(const PlanRequest& request);
Plan plan_all_to_all(const PlanRequest& request);
Plan plan_point_to_point(const PlanRequest& request);
// Rounds of one-byte messages: to the rank 1, 2, 4, ... places on.
Plan plan_barrier(const PlanRequest& request);

}  // namespace spillway::collective
