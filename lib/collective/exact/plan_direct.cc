// SPDX-License-Identifier: Apache-2.0
//
// Direct exchange: shard j of the tensor belongs to rank j, and the shares give its length. Piece
// by piece, every rank sends its part of a shard to the shard's owner. The owner adds them up by
// rank and, for an all-reduce, sends the sum to all ranks.
//
// Pieces flow by a window: a rank sends piece k to an owner when that owner's sum of piece k - W
// has come back. By then the owner has room for it (its scratch for piece k - W is free) and
// expects it. So scratch is bounded, and no rank sends what is not expected. A reduce to one root
// has no sums that come back; there a rank that is ahead may have to wait until it is expected.
#include <vector>

#include "collective/exact/plan.h"
#include "collective/exact/planner.h"
#include "collective/shards.h"

namespace spillway::collective {

namespace {

using wire::Phase;

class DirectPlan {
 public:
  // `longest`: elements of the largest shard.
  DirectPlan(const PlanTask& task, std::size_t longest)
      : task_(task),
        longest_(longest),
        element_(task.element_bytes()),
        piece_elements_(task.piece_bytes(longest * element_) / element_),
        world_(task.group.world),
        rank_(task.group.rank),
        plan_(task.options.window),
        came_back_(world_),
        scratch_(world_) {}

  Plan all_reduce();
  Plan reduce_scatter();
  Plan reduce_to_root();
  Plan sum_of_shards();
  Plan copy_of_shards();

 private:
  std::size_t rounds(std::size_t most_elements) const {
    return piece_count(most_elements, piece_elements_);
  }
  Extent piece(const Extent& shard, std::size_t round) const {
    return round < rounds(shard.count) ? piece_of(shard, piece_elements_, round) : Extent{};
  }
  Span span(Region region, const Extent& extent) const {
    return {region, extent.first * element_, extent.count * element_};
  }
  Extent shard(std::uint16_t owner) const {
    return shard_of(task_.operation.count, world_, owner, task_.shares);
  }
  std::uint16_t neighbour(unsigned distance) const {
    return static_cast<std::uint16_t>((rank_ + distance) % world_);
  }
  StepId before_window(const std::vector<StepId>& steps, std::size_t round) const {
    return round >= task_.options.window ? steps[round - task_.options.window] : kNoStep;
  }

  void contribute(std::size_t round, const Extent& extent, std::uint16_t owner);
  StepId collect(std::size_t round, const Span& own, const Span& target,
                 StepId target_is_free = kNoStep);
  Span scratch_for(std::uint16_t source, std::size_t round, std::size_t bytes);

  const PlanTask& task_;
  std::size_t longest_;
  std::size_t element_;
  std::size_t piece_elements_;
  std::uint16_t world_;
  std::uint16_t rank_;
  PlanBuilder plan_;
  std::vector<std::vector<StepId>> came_back_;  // by owner and round: its sum, received
  std::vector<StepId> sums_;                    // by round: this rank's sum
  std::vector<std::vector<Span>> scratch_;      // by source: a ring of `window` pieces
};

Span DirectPlan::scratch_for(std::uint16_t source, std::size_t round, std::size_t bytes) {
  std::vector<Span>& slots = scratch_[source];
  const std::size_t slot = round % task_.options.window;
  if (slots.size() <= slot) {
    slots.push_back(plan_.scratch(piece_elements_ * element_));
  }
  return {Region::kScratch, slots[slot].offset, bytes};
}

// Sends this rank's part of an owner's piece.
void DirectPlan::contribute(std::size_t round, const Extent& extent, std::uint16_t owner) {
  plan_.send(owner, Phase::kReduce, round, span(Region::kInput, extent),
             {before_window(came_back_[owner], round)});
}

// Receives the other ranks' parts of this rank's piece and adds all up, by rank.
StepId DirectPlan::collect(std::size_t round, const Span& own, const Span& target,
                           StepId target_is_free) {
  std::vector<Span> sources(world_, own);
  std::vector<StepId> came = {target_is_free};
  for (unsigned distance = 1; distance < world_; ++distance) {
    const std::uint16_t source = neighbour(distance);
    sources[source] = scratch_for(source, round, own.bytes);
    came.push_back(plan_.receive(source, Phase::kReduce, round, sources[source],
                                 {before_window(sums_, round)}));
  }
  sums_.push_back(plan_.reduce(target, sources, /*is_final=*/true, came));
  return sums_.back();
}

Plan DirectPlan::all_reduce() {
  const std::size_t most_rounds = rounds(longest_);
  for (std::size_t round = 0; round < most_rounds; ++round) {
    const Extent mine = piece(shard(rank_), round);
    // Receives first: what is sent below may be answered at once.
    const StepId sum =
        mine.count == 0 ? kNoStep
                        : collect(round, span(Region::kInput, mine), span(Region::kOutput, mine));
    for (unsigned distance = 1; distance < world_; ++distance) {
      const std::uint16_t owner = neighbour(distance);
      const Extent theirs = piece(shard(owner), round);
      came_back_[owner].push_back(
          plan_.receive(owner, Phase::kGather, round, span(Region::kOutput, theirs)));
      contribute(round, theirs, owner);
      plan_.send(owner, Phase::kGather, round, span(Region::kOutput, mine), {sum});
    }
  }
  return plan_.finish(Algorithm::kDirect);
}

// An all-reduce without its second half. A receipt of one byte for every piece beyond the window
// tells a rank that an owner has room.
Plan DirectPlan::reduce_scatter() {
  const Extent block{0, task_.operation.count};
  const Span receipt = plan_.scratch(1);
  const Span received = plan_.scratch(1);  // for all of them: only their arrival counts
  const std::size_t most_rounds = rounds(block.count);
  for (std::size_t round = 0; round < most_rounds; ++round) {
    const Extent mine = piece(block, round);
    const auto in_input = [&](std::uint16_t owner) {
      return Extent{owner * block.count + mine.first, mine.count};
    };
    const bool needs_receipt = round + task_.options.window < most_rounds;
    const StepId sum =
        collect(round, span(Region::kInput, in_input(rank_)), span(Region::kOutput, mine));
    for (unsigned distance = 1; distance < world_; ++distance) {
      const std::uint16_t owner = neighbour(distance);
      came_back_[owner].push_back(
          needs_receipt ? plan_.receive(owner, Phase::kGather, round, received) : kNoStep);
      contribute(round, in_input(owner), owner);
      if (needs_receipt) {
        plan_.send(owner, Phase::kGather, round, receipt, {sum});
      }
    }
  }
  return plan_.finish(Algorithm::kDirect);
}

// Owners send their sums only to the root.
Plan DirectPlan::reduce_to_root() {
  const std::uint16_t root = task_.operation.root;
  const std::size_t most_rounds = rounds(longest_);
  std::vector<StepId> handed_in;  // by round: this rank's sum, at the root
  for (std::size_t round = 0; round < most_rounds; ++round) {
    const Extent mine = piece(shard(rank_), round);
    const Span own = span(Region::kInput, mine);
    const Span target = rank_ == root ? span(Region::kOutput, mine)
                                      : scratch_for(rank_, round, mine.count * element_);
    const StepId sum =
        mine.count == 0 ? kNoStep : collect(round, own, target, before_window(handed_in, round));
    for (unsigned distance = 1; distance < world_; ++distance) {
      const std::uint16_t owner = neighbour(distance);
      plan_.send(owner, Phase::kReduce, round, span(Region::kInput, piece(shard(owner), round)));
    }
    handed_in.push_back(rank_ == root ? kNoStep
                                      : plan_.send(root, Phase::kGather, round, target, {sum}));
    for (unsigned distance = 1; rank_ == root && distance < world_; ++distance) {
      const std::uint16_t owner = neighbour(distance);
      plan_.receive(owner, Phase::kGather, round,
                    span(Region::kOutput, piece(shard(owner), round)));
    }
  }
  return plan_.finish(Algorithm::kDirect);
}

// The first half of an all-reduce. No sum comes back, so a rank that is ahead waits until an owner
// expects it.
Plan DirectPlan::sum_of_shards() {
  for (std::size_t round = 0; round < rounds(longest_); ++round) {
    const Extent mine = piece(shard(rank_), round);
    if (mine.count > 0) {
      collect(round, span(Region::kInput, mine), span(Region::kOutput, mine));
    }
    for (unsigned distance = 1; distance < world_; ++distance) {
      const std::uint16_t owner = neighbour(distance);
      plan_.send(owner, Phase::kReduce, round, span(Region::kInput, piece(shard(owner), round)));
    }
  }
  return plan_.finish(Algorithm::kDirect);
}

// The second half.
Plan DirectPlan::copy_of_shards() {
  for (std::size_t round = 0; round < rounds(longest_); ++round) {
    for (unsigned distance = 1; distance < world_; ++distance) {
      const std::uint16_t owner = neighbour(distance);
      plan_.receive(owner, Phase::kGather, round,
                    span(Region::kOutput, piece(shard(owner), round)));
      plan_.send(owner, Phase::kGather, round, span(Region::kOutput, piece(shard(rank_), round)));
    }
  }
  return plan_.finish(Algorithm::kDirect);
}

}  // namespace

Plan plan_direct_sum_of_shards(const PlanTask& task) {
  return DirectPlan(task, longest_shard(task.operation.count, task.group.world, task.shares))
      .sum_of_shards();
}

Plan plan_direct_copy_of_shards(const PlanTask& task) {
  return DirectPlan(task, longest_shard(task.operation.count, task.group.world, task.shares))
      .copy_of_shards();
}

Plan plan_direct_all_reduce(const PlanTask& task) {
  return DirectPlan(task, longest_shard(task.operation.count, task.group.world, task.shares))
      .all_reduce();
}

Plan plan_direct_reduce_scatter(const PlanTask& task) {
  return DirectPlan(task, task.operation.count).reduce_scatter();
}

Plan plan_direct_reduce(const PlanTask& task) {
  return DirectPlan(task, longest_shard(task.operation.count, task.group.world, task.shares))
      .reduce_to_root();
}

Plan plan_direct_all_gather(const PlanTask& task) {
  const std::size_t bytes = task.operation.bytes();
  const std::uint16_t world = task.group.world;
  const std::uint16_t rank = task.group.rank;
  const std::size_t most = task.message_bytes(bytes);
  PlanBuilder plan(task.options.window);
  for (unsigned distance = 1; distance < world; ++distance) {
    const auto from = static_cast<std::uint16_t>((rank + world - distance) % world);
    const auto to = static_cast<std::uint16_t>((rank + distance) % world);
    plan.receive_pieces(from, wire::Phase::kGather, {Region::kOutput, from * bytes, bytes}, most);
    plan.send_pieces(to, wire::Phase::kGather, {Region::kInput, 0, bytes}, most);
  }
  plan.copy({Region::kOutput, rank * bytes, bytes}, {Region::kInput, 0, bytes});
  return plan.finish(Algorithm::kDirect);
}

// Operations in which every pair of ranks exchanges its own data once, and the barrier.

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
