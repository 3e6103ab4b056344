// SPDX-License-Identifier: Apache-2.0
//
// Turns an operation into a rank's plan.
//
// The algorithm, unless the caller chooses one (docs/algorithms.md says why):
//
//   operation         tree                          hierarchical / ring        direct
//   all_reduce        world > 32, shard < 4 KiB     near ranks known, world > 64 otherwise
//   reduce            bytes < 64 KiB                                           otherwise
//   broadcast         bytes < 64 KiB or world 2     otherwise (a chain)
//   reduce_scatter                                                             always
//   all_gather                                      world > 64, 64 KiB and up  otherwise
//   the rest                                                                   always
//
// Level by level (hierarchical) goes an all_reduce of 1 MiB and more, if the world is even
// (plan_levels.cc). Near are ranks of one host or rack. In a group with parameter servers an
// all_reduce goes through them, whatever the caller says, and everything else is planned among the
// workers.
//
// All of them form the same sum, bit for bit: reduction.h's tree over the ranks. So neither the
// plan nor the size of a bucket, a piece or a message changes a result. A ring alone adds in
// another order, from a shard's first rank round; it is used only where a caller asks for it.
//
// Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "collective/exact/plan.h"
#include "collective/shards.h"

namespace spillway::collective {

struct PlanOptions {
  // A shard is cut into pieces of at most so many bytes. At most `window` of them are under way
  // between a rank and an owner, which bounds scratch, and lets sums overlap with transfers.
  std::size_t piece_bytes = 512 * 1024;
  std::size_t window = 4;
  std::size_t pair_window = 2;  // for a send or receive
  // The same where nothing is added up: only a message's own limit counts there.
  std::size_t message_bytes = 16 * 1024 * 1024;
  // A run that would have more pieces than this is cut into longer ones: a plan grows with their
  // number.
  std::size_t most_pieces = 4096;
  // Ranks of a rack, which are numbered side by side; the same at all ranks. 0: unknown.
  std::uint16_t rack_ranks = 0;
  // The same of a host (hosts.h). 0: unknown, uneven, or numbered in another way.
  std::uint16_t host_ranks = 0;
  // Most bytes that a message can carry at all, because packets hold their number in 16 bits.
  std::size_t max_message_bytes = std::size_t{1} << 24;
};

// Packets hold a piece's number in 16 bits.
inline constexpr std::size_t kMaxParts = std::size_t{1} << 16;

// Bytes of a piece of a run of `bytes`: as many as wanted, more if there would be too many pieces,
// never more than a message can carry; whole elements.
std::size_t piece_size(std::size_t bytes, std::size_t element_bytes, std::size_t wanted,
                       const PlanOptions& options, std::size_t most_pieces);

// Bytes of a piece of a shard that takes several hops: links carry pieces of one hop and of the
// next at the same time, all but the first and the last. A piece has at most `most` bytes, and not
// fewer than `least`.
inline constexpr std::size_t kLeastPiece = 16 * 1024;  // less is not worth a message
std::size_t pipelined_piece_bytes(std::size_t shard_bytes, std::size_t least, std::size_t most);

// Checks that the operation's pieces can be numbered; the error states the limit.
base::Status check_size(const Operation& operation, const Group& group, const PlanOptions& options);

// The algorithm that will be used: never kAutomatic.
Algorithm choose_algorithm(const Operation& operation, const Group& group,
                           const PlanOptions& options = {});

// Ranks that exchange with each other on each level of a hierarchical all-reduce, nearest first:
// the hosts' and the racks', if they are known and hold a power of two; else pairs, as long as the
// world divides. Empty if the world has no two levels.
std::vector<std::uint16_t> level_factors(const Group& group, const PlanOptions& options);
// True if the first level is a host or a rack that is known.
bool has_near_ranks(const Group& group, const PlanOptions& options);

// The operation must be valid. `shares`: each rank's, in an all-reduce by direct exchange.
Plan make_plan(const Operation& operation, const Group& group, const PlanOptions& options = {},
               const Shares& shares = {});

// The algorithms, one function each: the plan of what rank `group.rank` does. Called through
// make_plan(), which picks one.

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

// The two halves of a direct all-reduce: every rank ends with the sum of its own shard, in its
// place in the output; and every rank hands out its shard of the output.
Plan plan_direct_sum_of_shards(const PlanTask& task);
Plan plan_direct_copy_of_shards(const PlanTask& task);

// The same level by level; the group must have levels.
Plan plan_hierarchical_all_reduce(const PlanTask& task);

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
