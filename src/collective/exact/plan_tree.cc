// SPDX-License-Identifier: Apache-2.0
//
// Binomial trees: counted from the root, rank v has the children v + 1, v + 2, v + 4, ... as far as
// the lowest set bit of v allows. The subtree of v + 2^b is the 2^b ranks from there on, so adding
// own part and children in that order adds up by rank.
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
        world_(task.group.world),
        rank_(task.group.rank),
        root_(root),
        position_((rank_ + world_ - root) % world_) {}

  Plan all_reduce() {
    const StepId sum = add_up();
    pass_down(rank_ == root_ ? sum : kNoStep);
    return plan_.finish(Algorithm::kTree);
  }
  Plan reduce() {
    add_up();
    return plan_.finish(Algorithm::kTree);
  }
  Plan broadcast() {
    pass_down(rank_ == root_ ? plan_.copy(output(), input()) : kNoStep);
    return plan_.finish(Algorithm::kTree);
  }

 private:
  Span input() const { return {Region::kInput, 0, bytes_}; }
  Span output() const { return {Region::kOutput, 0, bytes_}; }
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

  // The sum of this rank's subtree: at the root the result, elsewhere sent to the parent.
  StepId add_up() {
    std::vector<Span> sources = {input()};
    std::vector<StepId> came;
    for (const std::uint16_t child : children()) {
      sources.push_back(plan_.scratch(bytes_));
      came.push_back(plan_.receive(child, Phase::kReduce, 0, sources.back()));
    }
    if (rank_ == root_) {
      return plan_.reduce(output(), sources, /*is_final=*/true, came);
    }
    Span sum = input();
    StepId added = kNoStep;
    if (!came.empty()) {
      sum = plan_.scratch(bytes_);
      added = plan_.reduce(sum, sources, /*is_final=*/false, came);
    }
    return plan_.send(parent(), Phase::kReduce, 0, sum, {added});
  }

  // From the root, where it is complete after `ready`, to everybody.
  void pass_down(StepId ready) {
    const StepId there =
        rank_ == root_ ? ready : plan_.receive(parent(), Phase::kGather, 0, output());
    const std::vector<std::uint16_t> below = children();
    // The largest subtree first: it has the longest way to go.
    for (auto child = below.rbegin(); child != below.rend(); ++child) {
      plan_.send(*child, Phase::kGather, 0, output(), {there});
    }
  }

  std::size_t bytes_;
  std::uint16_t world_;
  std::uint16_t rank_;
  std::uint16_t root_;
  unsigned position_;
  PlanBuilder plan_;
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
