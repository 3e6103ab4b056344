// SPDX-License-Identifier: Apache-2.0
//
// Binomial trees: counted from the root, rank v has the children v + 1, v + 2, v + 4, ... as far as
// the lowest set bit of v allows. The subtree of v + 2^b is the 2^b ranks from there on, so adding
// the own part and the children's in that order adds up by rank. Pieces go up and down one after
// the other, as many at a time as the window allows.
#include <algorithm>
#include <map>
#include <vector>

#include "collective/exact/algorithms.h"
#include "collective/exact/plan.h"

namespace spillway::collective {
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
        position_((rank_ + world_ - root) % world_),
        plan_(task.options.window) {}

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
  std::uint16_t rank_at(unsigned position) const {
    return static_cast<std::uint16_t>((position + root_) % world_);
  }
  std::uint16_t parent() const { return rank_at(position_ & (position_ - 1)); }
  std::vector<std::uint16_t> children() const {
    std::vector<std::uint16_t> ranks;
    for (unsigned bit = 1; position_ + bit < world_ && (position_ & bit) == 0; bit *= 2) {
      ranks.push_back(rank_at(position_ + bit));
    }
    return ranks;
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

  // Forms the sum of this rank's subtree: at the root the result, elsewhere sent to the parent.
  StepId add_up(std::size_t k) {
    const Span own = piece(Region::kInput, k);
    std::vector<Span> sources = {own};
    std::vector<StepId> came;
    if (rank_ != root_) {
      came.push_back(before_window(sent_, k));
    }
    for (const std::uint16_t child : children()) {
      sources.push_back(place(child, k, own.bytes));
      came.push_back(
          plan_.receive(child, Phase::kReduce, k, sources.back(), {before_window(added_, k)}));
    }
    if (rank_ == root_) {
      added_.push_back(plan_.reduce(piece(Region::kOutput, k), sources, /*is_final=*/true, came));
      return added_.back();
    }
    const bool is_leaf = sources.size() == 1;
    const Span sum = is_leaf ? own : place(rank_, k, own.bytes);
    added_.push_back(is_leaf ? kNoStep : plan_.reduce(sum, sources, /*is_final=*/false, came));
    sent_.push_back(plan_.send(parent(), Phase::kReduce, k, sum, {added_.back()}));
    return sent_.back();
  }

  // Passes a piece down from the root, where it is complete after `ready`.
  void pass_down(std::size_t k, StepId ready) {
    const Span span = piece(Region::kOutput, k);
    const StepId there = rank_ == root_ ? ready : plan_.receive(parent(), Phase::kGather, k, span);
    const std::vector<std::uint16_t> below = children();
    // The largest subtree first: it has the longest way to go.
    for (auto child = below.rbegin(); child != below.rend(); ++child) {
      plan_.send(*child, Phase::kGather, k, span, {there});
    }
  }

  std::size_t bytes_;
  std::size_t piece_bytes_;
  std::size_t window_;
  std::uint16_t world_;
  std::uint16_t rank_;
  std::uint16_t root_;
  unsigned position_;
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
