// SPDX-License-Identifier: Apache-2.0
//
// Rings: every rank talks to its two neighbours alone. The sum of a shard begins at its first rank
// and gathers one rank's part at each hop, world - 1 in all; then it is passed round once more.
// Shards, and pieces of shards, are under way at the same time.
//
// For a shard that begins at rank s, the place of rank r in its journey is (r - s) mod world.
#include <array>

#include "collective/exact/algorithms.h"
#include "collective/exact/plan.h"
#include "collective/shards.h"

namespace spillway::collective {
namespace {

using wire::Phase;

class RingPlan {
 public:
  explicit RingPlan(const PlanTask& task)
      : task_(task),
        element_(task.element_bytes()),
        world_(task.group.world),
        rank_(task.group.rank),
        next_(static_cast<std::uint16_t>((rank_ + 1) % world_)),
        previous_(static_cast<std::uint16_t>((rank_ + world_ - 1) % world_)) {}

  Plan all_reduce();
  Plan reduce_scatter();
  Plan all_gather();
  Plan broadcast_chain();

 private:
  // One piece's journey round the ring: where it begins, its number, this rank's own part of it
  // and where its sum goes at the last rank.
  struct Journey {
    std::uint16_t start;
    std::size_t part;
    Span own;
    Span result;
  };

  std::uint16_t place(std::uint16_t start) const {
    return static_cast<std::uint16_t>((rank_ + world_ - start) % world_);
  }
  // Adds this rank's part and passes the sum on. The step after which `result` holds the sum, at
  // the last rank of the journey.
  StepId add_up(const Journey& journey);
  // Passes `span`, which is complete at rank `start` after `ready`, to all ranks behind it.
  void pass_round(std::uint16_t start, std::size_t part, const Span& span, StepId ready);
  std::size_t parts_per_shard(std::size_t most_elements) const {
    return piece_count(most_elements, piece_elements());
  }
  // Pieces are longer where there would be more than messages can be numbered.
  std::size_t piece_elements() const {
    const std::size_t wanted = task_.options.piece_bytes / element_;
    const std::size_t all = task_.operation.count * world_;
    return std::max<std::size_t>({1, wanted, all / kMaxParts + 1});
  }

  static constexpr std::size_t kMaxParts = 4096;

  const PlanTask& task_;
  std::size_t element_;
  std::uint16_t world_;
  std::uint16_t rank_;
  std::uint16_t next_;
  std::uint16_t previous_;
  PlanBuilder plan_;
};

StepId RingPlan::add_up(const Journey& journey) {
  const unsigned at = place(journey.start);
  if (at == 0) {
    plan_.send(next_, Phase::kReduce, journey.part, journey.own);
    return kNoStep;
  }
  const bool is_last = at + 1U == world_;
  const Span arrived = plan_.scratch(journey.own.bytes);
  const Span target = is_last ? journey.result : arrived;
  const std::array came = {plan_.receive(previous_, Phase::kReduce, journey.part, arrived)};
  const std::array sources = {arrived, journey.own};
  const StepId sum = plan_.reduce(target, sources, is_last, came);
  if (!is_last) {
    plan_.send(next_, Phase::kReduce, journey.part, target, {sum});
  }
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
  const std::size_t pieces = parts_per_shard(shard_of(count, world_, 0).count);
  for (std::size_t k = 0; k < pieces; ++k) {
    for (std::uint16_t start = 0; start < world_; ++start) {
      const Extent shard = shard_of(count, world_, start);
      if (k * piece_elements() >= shard.count) {
        continue;
      }
      const Extent piece = piece_of(shard, piece_elements(), k);
      const std::size_t bytes = piece.count * element_;
      const Span own{Region::kInput, piece.first * element_, bytes};
      const Span result{Region::kOutput, own.offset, bytes};
      const std::size_t part = start * pieces + k;
      const StepId sum = add_up({start, part, own, result});
      const auto last = static_cast<std::uint16_t>((start + world_ - 1) % world_);
      pass_round(last, part, result, sum);
    }
  }
  return plan_.finish(Algorithm::kRing);
}

// The sum of block b ends at rank b, so it begins at rank b + 1.
Plan RingPlan::reduce_scatter() {
  const Extent whole{0, task_.operation.count};
  const std::size_t pieces = parts_per_shard(whole.count);
  for (std::size_t k = 0; k < pieces; ++k) {
    const Extent piece = piece_of(whole, piece_elements(), k);
    const std::size_t bytes = piece.count * element_;
    for (std::uint16_t block = 0; block < world_; ++block) {
      const std::size_t first = block * whole.count + piece.first;
      const auto start = static_cast<std::uint16_t>((block + 1) % world_);
      add_up({start,
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
  const std::size_t most = piece_elements() * element_;
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
  const std::size_t most = task_.options.piece_bytes;
  for (std::size_t k = 0; k * most < bytes; ++k) {
    pass_round(root, k, {Region::kOutput, k * most, std::min(most, bytes - k * most)}, copied);
  }
  return plan_.finish(Algorithm::kRing);
}

}  // namespace

Plan plan_ring_all_reduce(const PlanTask& task) {
  return RingPlan(task).all_reduce();
}

Plan plan_ring_reduce_scatter(const PlanTask& task) {
  return RingPlan(task).reduce_scatter();
}

Plan plan_ring_all_gather(const PlanTask& task) {
  return RingPlan(task).all_gather();
}

Plan plan_chain_broadcast(const PlanTask& task) {
  return RingPlan(task).broadcast_chain();
}

}  // namespace spillway::collective
