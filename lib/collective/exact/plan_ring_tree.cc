// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <vector>

#include "collective/exact/plan.h"
#include "collective/exact/planner.h"
#include "collective/shards.h"

namespace spillway::collective {

// Rings: every rank talks only to its two neighbours. The sum of a shard begins at its first rank
// and gathers one rank's part at each hop, world - 1 in all; then it is passed round once more. All
// shards are under way at the same time, and of each as many pieces as the window allows, one
// behind the other. A piece's place in the scratch memory is free for the next one as soon as its
// sum has been passed on.
//
// For a shard that begins at rank s, the place of rank r in its journey is (r - s) mod world.

namespace {

using wire::Phase;

class RingPlan {
 public:
  // `pieces_per_round`: pieces that pass a neighbour from one piece of a shard to its next.
  RingPlan(const PlanTask& task, std::size_t pieces_per_round)
      : task_(task),
        element_(task.element_bytes()),
        world_(task.group.world),
        rank_(task.group.rank),
        next_(static_cast<std::uint16_t>((rank_ + 1) % world_)),
        previous_(static_cast<std::uint16_t>((rank_ + world_ - 1) % world_)),
        plan_(task.options.window * pieces_per_round),
        places_(world_) {}

  Plan all_reduce();
  Plan reduce_scatter();
  Plan all_gather();
  Plan broadcast_chain();

 private:
  // One piece's journey round the ring: where it begins, its number, this rank's own part of it
  // and where its sum goes at the last rank.
  struct Journey {
    std::uint16_t start;
    std::size_t round;
    std::size_t part;
    Span own;
    Span result;
  };

  std::uint16_t place(std::uint16_t start) const {
    return static_cast<std::uint16_t>((rank_ + world_ - start) % world_);
  }
  // Adds this rank's part and passes the sum on. Returns the step after which `result` holds the
  // sum, at the last rank of the journey.
  StepId add_up(const Journey& journey);
  // Passes `span`, which is complete at rank `start` after `ready`, to all ranks after it.
  void pass_round(std::uint16_t start, std::size_t part, const Span& span, StepId ready);
  // Piece length for a shard of so many elements. The pieces of all shards are numbered together.
  std::size_t piece_elements(std::size_t shard_elements) const {
    const std::size_t most = std::min(task_.options.most_pieces, kMaxParts / world_);
    return piece_size(shard_elements * element_, element_, task_.options.piece_bytes, task_.options,
                      most) /
           element_;
  }

  // Where a sum waits to be passed on, and the step after which the place is free again.
  struct Place {
    Span span;
    StepId is_free = kNoStep;
  };
  Place& place_for(const Journey& journey) {
    std::vector<Place>& ring = places_[journey.start];
    const std::size_t slot = journey.round % task_.options.window;
    if (ring.size() <= slot) {
      ring.push_back({plan_.scratch(journey.own.bytes)});  // the first pieces are the longest
    }
    return ring[slot];
  }

  const PlanTask& task_;
  std::size_t element_;
  std::uint16_t world_;
  std::uint16_t rank_;
  std::uint16_t next_;
  std::uint16_t previous_;
  PlanBuilder plan_;
  std::vector<std::vector<Place>> places_;  // by shard: a ring of `window` pieces
};

StepId RingPlan::add_up(const Journey& journey) {
  const unsigned at = place(journey.start);
  if (at == 0) {
    plan_.send(next_, Phase::kReduce, journey.part, journey.own);
    return kNoStep;
  }
  const bool is_last = at + 1U == world_;
  Place& place = place_for(journey);
  const Span arrived{Region::kScratch, place.span.offset, journey.own.bytes};
  const Span target = is_last ? journey.result : arrived;
  const std::array came = {
      plan_.receive(previous_, Phase::kReduce, journey.part, arrived, {place.is_free})};
  const std::array sources = {arrived, journey.own};
  const StepId sum = plan_.reduce(target, sources, is_last, came);
  place.is_free = is_last ? sum : plan_.send(next_, Phase::kReduce, journey.part, target, {sum});
  return sum;
}

void RingPlan::pass_round(std::uint16_t start, std::size_t part, const Span& span, StepId ready) {
  const unsigned at = place(start);
  const StepId there = at == 0 ? ready : plan_.receive(previous_, Phase::kGather, part, span);
  if (at + 1U < world_) {
    plan_.send(next_, Phase::kGather, part, span, {there});
  }
}

Plan RingPlan::all_reduce() {
  const std::size_t count = task_.operation.count;
  const std::size_t longest = shard_of(count, world_, 0).count;
  const std::size_t most = piece_elements(longest);
  const std::size_t pieces = piece_count(longest, most);
  for (std::size_t k = 0; k < pieces; ++k) {
    for (std::uint16_t start = 0; start < world_; ++start) {
      const Extent shard = shard_of(count, world_, start);
      if (k * most >= shard.count) {
        continue;
      }
      const Extent piece = piece_of(shard, most, k);
      const std::size_t bytes = piece.count * element_;
      const Span own{Region::kInput, piece.first * element_, bytes};
      const Span result{Region::kOutput, own.offset, bytes};
      const std::size_t part = start * pieces + k;
      const StepId sum = add_up({start, k, part, own, result});
      const auto last = static_cast<std::uint16_t>((start + world_ - 1) % world_);
      pass_round(last, part, result, sum);
    }
  }
  return plan_.finish(Algorithm::kRing);
}

// The sum of block b ends at rank b, so it begins at rank b + 1.
Plan RingPlan::reduce_scatter() {
  const Extent whole{0, task_.operation.count};
  const std::size_t most = piece_elements(whole.count);
  const std::size_t pieces = piece_count(whole.count, most);
  for (std::size_t k = 0; k < pieces; ++k) {
    const Extent piece = piece_of(whole, most, k);
    const std::size_t bytes = piece.count * element_;
    for (std::uint16_t block = 0; block < world_; ++block) {
      const std::size_t first = block * whole.count + piece.first;
      const auto start = static_cast<std::uint16_t>((block + 1) % world_);
      add_up({start,
              k,
              block * pieces + k,
              {Region::kInput, first * element_, bytes},
              {Region::kOutput, piece.first * element_, bytes}});
    }
  }
  return plan_.finish(Algorithm::kRing);
}

Plan RingPlan::all_gather() {
  const std::size_t bytes = task_.operation.bytes();
  const Span own{Region::kOutput, rank_ * bytes, bytes};
  const StepId copied = plan_.copy(own, {Region::kInput, 0, bytes});
  const std::size_t most = piece_elements(task_.operation.count) * element_;
  const std::size_t pieces = piece_count(bytes, most);
  for (std::size_t k = 0; k < pieces; ++k) {
    const std::size_t length = std::min(most, bytes - k * most);
    for (std::uint16_t start = 0; start < world_; ++start) {
      pass_round(start, start * pieces + k, {Region::kOutput, start * bytes + k * most, length},
                 copied);
    }
  }
  return plan_.finish(Algorithm::kRing);
}

Plan RingPlan::broadcast_chain() {
  const std::uint16_t root = task_.operation.root;
  const std::size_t bytes = task_.operation.bytes();
  const Span whole{Region::kOutput, 0, bytes};
  const StepId copied = rank_ == root ? plan_.copy(whole, {Region::kInput, 0, bytes}) : kNoStep;
  const std::size_t most = piece_size(bytes, element_, task_.options.piece_bytes, task_.options,
                                      task_.options.most_pieces);
  for (std::size_t k = 0; k * most < bytes; ++k) {
    pass_round(root, k, {Region::kOutput, k * most, std::min(most, bytes - k * most)}, copied);
  }
  return plan_.finish(Algorithm::kRing);
}

}  // namespace

Plan plan_ring_all_reduce(const PlanTask& task) {
  return RingPlan(task, task.group.world - 1U).all_reduce();
}

Plan plan_ring_reduce_scatter(const PlanTask& task) {
  return RingPlan(task, task.group.world - 1U).reduce_scatter();
}

Plan plan_ring_all_gather(const PlanTask& task) {
  return RingPlan(task, task.group.world - 1U).all_gather();
}

Plan plan_chain_broadcast(const PlanTask& task) {
  return RingPlan(task, 1).broadcast_chain();
}

// Trees: ranks form runs of 2, 4, 8, ... aligned ranks. One rank speaks for each: the root if it
// belongs to the run, else its first. When two runs meet, the one that no longer speaks sends its
// sum to the one that does, so that the root gets the sum in reduction.h's order, whichever rank it
// is. Pieces go up and down one after the other, as many at a time as the window allows.

namespace {

using wire::Phase;

class TreePlan {
 public:
  TreePlan(const PlanTask& task, std::uint16_t root)
      : bytes_(task.operation.bytes()),
        piece_bytes_(task.piece_bytes(bytes_)),
        window_(task.options.window),
        world_(task.group.world),
        rank_(task.group.rank),
        root_(root),
        plan_(task.options.window) {
    meet_others();
  }

  Plan all_reduce() {
    for (std::size_t k = 0; k * piece_bytes_ < bytes_; ++k) {
      const StepId sum = add_up(k);
      pass_down(k, rank_ == root_ ? sum : kNoStep);
    }
    return plan_.finish(Algorithm::kTree);
  }
  Plan reduce() {
    for (std::size_t k = 0; k * piece_bytes_ < bytes_; ++k) {
      add_up(k);
    }
    return plan_.finish(Algorithm::kTree);
  }
  Plan broadcast() {
    const StepId copied =
        rank_ == root_ ? plan_.copy({Region::kOutput, 0, bytes_}, {Region::kInput, 0, bytes_})
                       : kNoStep;
    for (std::size_t k = 0; k * piece_bytes_ < bytes_; ++k) {
      pass_down(k, copied);
    }
    return plan_.finish(Algorithm::kTree);
  }

 private:
  Span piece(Region region, std::size_t k) const {
    const std::size_t first = k * piece_bytes_;
    return {region, first, std::min(piece_bytes_, bytes_ - first)};
  }
  // A rank whose run joins this one's.
  struct Child {
    std::uint16_t rank = 0;
    bool is_before = false;  // its ranks come before this rank's
  };

  std::uint16_t speaker(unsigned first, unsigned ranks) const {
    return static_cast<std::uint16_t>(root_ >= first && root_ < first + ranks ? root_ : first);
  }
  // Finds the children, in the order in which their runs join, and the parent.
  void meet_others() {
    for (unsigned run = 1; run < world_ && !parent_; run *= 2) {
      const unsigned both = rank_ / (2 * run) * (2 * run);
      const bool is_second = rank_ >= both + run;
      const unsigned other = is_second ? both : both + run;
      if (other >= world_) {
        continue;
      }
      if (speaker(both, 2 * run) == rank_) {
        children_.push_back({speaker(other, run), is_second});
      } else {
        parent_ = speaker(other, run);
      }
    }
  }
  // One of `window` scratch pieces that take turns; for a child's part, or for this rank's own sum.
  Span place(std::uint16_t whose, std::size_t k, std::size_t bytes) {
    std::vector<Span>& ring = places_[whose];
    const std::size_t slot = k % window_;
    if (ring.size() <= slot) {
      ring.push_back(plan_.scratch(bytes));  // the first pieces are the longest
    }
    return {Region::kScratch, ring[slot].offset, bytes};
  }
  StepId before_window(const std::vector<StepId>& steps, std::size_t k) const {
    return k >= window_ ? steps[k - window_] : kNoStep;
  }

  // Forms the sum of the ranks that this one speaks for: at the root the result, elsewhere sent to
  // the parent.
  StepId add_up(std::size_t k) {
    const Span own = piece(Region::kInput, k);
    const Span target = !parent_             ? piece(Region::kOutput, k)
                        : !children_.empty() ? place(rank_, k, own.bytes)
                                             : own;
    StepId sum = before_window(sent_, k);
    for (std::size_t i = 0; i < children_.size(); ++i) {
      const Child& child = children_[i];
      const Span theirs = place(child.rank, k, own.bytes);
      const std::array came = {
          sum, plan_.receive(child.rank, Phase::kReduce, k, theirs, {before_window(added_, k)})};
      const Span ours = i == 0 ? own : target;
      const std::array sources =
          child.is_before ? std::array{theirs, ours} : std::array{ours, theirs};
      sum = plan_.reduce(target, sources, !parent_ && i + 1 == children_.size(), came);
    }
    added_.push_back(sum);
    sent_.push_back(parent_ ? plan_.send(*parent_, Phase::kReduce, k, target, {sum}) : kNoStep);
    return sum;
  }

  // Passes a piece down from the root, where it is complete after `ready`.
  void pass_down(std::size_t k, StepId ready) {
    const Span span = piece(Region::kOutput, k);
    const StepId there = parent_ ? plan_.receive(*parent_, Phase::kGather, k, span) : ready;
    // The largest run first: it has the longest way to go.
    for (auto child = children_.rbegin(); child != children_.rend(); ++child) {
      plan_.send(child->rank, Phase::kGather, k, span, {there});
    }
  }

  std::size_t bytes_;
  std::size_t piece_bytes_;
  std::size_t window_;
  std::uint16_t world_;
  std::uint16_t rank_;
  std::uint16_t root_;
  std::optional<std::uint16_t> parent_;
  std::vector<Child> children_;
  PlanBuilder plan_;
  std::map<std::uint16_t, std::vector<Span>> places_;  // by child; this rank's own: its sums
  std::vector<StepId> added_;                          // by piece
  std::vector<StepId> sent_;                           // by piece: to the parent
};

}  // namespace

Plan plan_tree_all_reduce(const PlanTask& task) {
  return TreePlan(task, /*root=*/0).all_reduce();
}

Plan plan_tree_reduce(const PlanTask& task) {
  return TreePlan(task, task.operation.root).reduce();
}

Plan plan_tree_broadcast(const PlanTask& task) {
  return TreePlan(task, task.operation.root).broadcast();
}

}  // namespace spillway::collective
