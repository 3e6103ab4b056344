// SPDX-License-Identifier: Apache-2.0
//
// All-reduce in two levels, for racks whose uplinks carry less than their hosts' links together.
// Racks have the same number of ranks, which are numbered side by side; a rank has a seat in its
// rack.
//
// Shard j of the tensor belongs to seat j of every rack, and part k of it to the rank of that seat
// in rack k:
//
//   in the rack     every rank sends its part of a shard to the shard's seat, which adds up by rank
//   between racks   ranks of one seat do the same with the parts of these sums, which are added up
//                   by rack, and get the others' parts back
//   in the rack     every seat hands its shard out, part by part as it comes
//
// A host's link carries as much as in a direct exchange, 2 (n - 1) / n of the tensor. With n ranks
// in K racks, an uplink carries 2 (K - 1) / K of it each way instead of 2 (n - n / K) / K: half as
// much for n = 4 and K = 2.
//
// Pieces flow by a window, as in a direct exchange: a rank sends a piece to its owner when the
// owner's piece a window before has come back.
#include <algorithm>
#include <vector>

#include "collective/exact/algorithms.h"
#include "collective/exact/plan.h"
#include "collective/shards.h"

namespace spillway::collective {
namespace {

using wire::Phase;

class LevelsPlan {
 public:
  explicit LevelsPlan(const PlanTask& task)
      : task_(task),
        element_(task.element_bytes()),
        seats_(task.options.rack_ranks),
        racks_(task.group.world / seats_),
        seat_(task.group.rank % seats_),
        rack_(task.group.rank / seats_),
        piece_elements_(piece_elements(part(0, 0).count)),
        window_(window_of(task)),
        plan_(window_),
        mates_(seats_),
        others_(racks_) {}

  Plan all_reduce();

 private:
  // A rank with which pieces are exchanged, of the same rack or the same seat.
  struct Partner {
    std::vector<StepId> came_back;  // by message: its sums, received
    std::vector<Span> scratch;      // a ring of `window_` pieces
  };

  // In a rack a piece takes as many messages as there are racks. There are fewer partners than in a
  // direct exchange, so there is room for more messages with each at a time.
  static std::size_t window_of(const PlanTask& task) {
    const std::size_t seats = task.options.rack_ranks;
    const std::size_t racks = task.group.world / seats;
    const std::size_t room = task.options.window * task.group.world / (seats + racks - 2);
    return std::clamp(room, task.options.window, task.options.window * racks);
  }
  std::uint16_t rank_of(std::size_t rack, std::size_t seat) const {
    return static_cast<std::uint16_t>(rack * seats_ + seat);
  }
  // The part of a seat's shard that belongs to a rack.
  Extent part(std::size_t seat, std::size_t rack) const {
    const Extent shard = shard_of(task_.operation.count, seats_, seat);
    const Extent part = shard_of(shard.count, racks_, rack);
    return {shard.first + part.first, part.count};
  }
  // Piece length for a part of so many elements. In a rack, pieces for all racks are numbered
  // together.
  std::size_t piece_elements(std::size_t part_elements) const {
    const std::size_t most = std::min(task_.options.most_pieces, kMaxParts / racks_);
    return piece_size(part_elements * element_, element_, task_.options.piece_bytes, task_.options,
                      most) /
           element_;
  }
  Span piece(Region region, std::size_t seat, std::size_t rack, std::size_t round) const {
    const Extent whole = part(seat, rack);
    if (round >= piece_count(whole.count, piece_elements_)) {
      return {region, 0, 0};
    }
    const Extent extent = piece_of(whole, piece_elements_, round);
    return {region, extent.first * element_, extent.count * element_};
  }
  StepId before_window(const std::vector<StepId>& steps, std::size_t message) const {
    return message >= window_ ? steps[message - window_] : kNoStep;
  }
  Span scratch_for(Partner& partner, std::size_t message, std::size_t bytes);

  StepId add_up_in_rack(std::size_t rack, std::size_t round);
  StepId add_up_racks(std::size_t round, StepId own);
  void exchange_with_racks(std::size_t round, std::vector<StepId>& sums);
  void hand_out_in_rack(std::size_t rack, std::size_t round, StepId sum);

  const PlanTask& task_;
  std::size_t element_;
  std::size_t seats_;
  std::size_t racks_;
  std::size_t seat_;
  std::size_t rack_;
  std::size_t piece_elements_;
  std::size_t window_;
  PlanBuilder plan_;
  std::vector<Partner> mates_;      // by seat
  std::vector<Partner> others_;     // by rack
  std::vector<StepId> rack_sums_;   // by message in the rack
  std::vector<StepId> whole_sums_;  // by round: sum of this rank's part
};

Span LevelsPlan::scratch_for(Partner& partner, std::size_t message, std::size_t bytes) {
  const std::size_t slot = message % window_;
  while (partner.scratch.size() <= slot) {
    partner.scratch.push_back(plan_.scratch(piece_elements_ * element_));
  }
  return {Region::kScratch, partner.scratch[slot].offset, bytes};
}

// Sends this rank's contributions to its mates. Adds theirs to its own shard's piece for `rack`,
// where the result will be.
StepId LevelsPlan::add_up_in_rack(std::size_t rack, std::size_t round) {
  const std::size_t message = round * racks_ + rack;
  const Span own = piece(Region::kInput, seat_, rack, round);
  std::vector<Span> sources(seats_, own);
  std::vector<StepId> came;
  for (std::size_t distance = 1; distance < seats_; ++distance) {
    const std::size_t seat = (seat_ + distance) % seats_;
    Partner& mate = mates_[seat];
    if (own.bytes > 0) {
      sources[seat] = scratch_for(mate, message, own.bytes);
      came.push_back(plan_.receive(rank_of(rack_, seat), Phase::kReduce, message, sources[seat],
                                   {before_window(rack_sums_, message)}));
    }
    plan_.send(rank_of(rack_, seat), Phase::kReduce, message,
               piece(Region::kInput, seat, rack, round), {before_window(mate.came_back, message)});
    mate.came_back.push_back(plan_.receive(rank_of(rack_, seat), Phase::kGather, message,
                                           piece(Region::kOutput, seat, rack, round)));
  }
  rack_sums_.push_back(
      plan_.reduce(piece(Region::kOutput, seat_, rack, round), sources, /*is_final=*/false, came));
  return rack_sums_.back();
}

// Adds the other racks' sums of this rank's own part to its rack's.
StepId LevelsPlan::add_up_racks(std::size_t round, StepId own) {
  const Span target = piece(Region::kOutput, seat_, rack_, round);
  std::vector<Span> sources(racks_, target);
  std::vector<StepId> came = {own};
  for (std::size_t distance = 1; distance < racks_ && target.bytes > 0; ++distance) {
    const std::size_t rack = (rack_ + distance) % racks_;
    sources[rack] = scratch_for(others_[rack], round, target.bytes);
    came.push_back(plan_.receive(rank_of(rack, seat_), Phase::kReduce, round, sources[rack],
                                 {before_window(whole_sums_, round)}));
  }
  whole_sums_.push_back(plan_.reduce(target, sources, /*is_final=*/true, came));
  return whole_sums_.back();
}

// `sums`: by rack, of this rank's shard; before the call those of this rack, then those of all
// ranks.
void LevelsPlan::exchange_with_racks(std::size_t round, std::vector<StepId>& sums) {
  sums[rack_] = add_up_racks(round, sums[rack_]);
  for (std::size_t distance = 1; distance < racks_; ++distance) {
    const std::size_t rack = (rack_ + distance) % racks_;
    const std::uint16_t peer = rank_of(rack, seat_);
    const Span theirs = piece(Region::kOutput, seat_, rack, round);
    plan_.send(peer, Phase::kReduce, round, theirs,
               {sums[rack], before_window(others_[rack].came_back, round)});
    // Received into the memory that is sent from: the result comes only after all of that has
    // arrived.
    others_[rack].came_back.push_back(plan_.receive(peer, Phase::kGather, round, theirs));
    plan_.send(peer, Phase::kGather, round, piece(Region::kOutput, seat_, rack_, round),
               {sums[rack_]});
    sums[rack] = others_[rack].came_back.back();
  }
}

void LevelsPlan::hand_out_in_rack(std::size_t rack, std::size_t round, StepId sum) {
  for (std::size_t distance = 1; distance < seats_; ++distance) {
    plan_.send(rank_of(rack_, (seat_ + distance) % seats_), Phase::kGather, round * racks_ + rack,
               piece(Region::kOutput, seat_, rack, round), {sum});
  }
}

Plan LevelsPlan::all_reduce() {
  const std::size_t rounds = piece_count(part(0, 0).count, piece_elements_);
  for (std::size_t round = 0; round < rounds; ++round) {
    std::vector<StepId> sums;
    for (std::size_t rack = 0; rack < racks_; ++rack) {
      sums.push_back(add_up_in_rack(rack, round));
    }
    exchange_with_racks(round, sums);
    for (std::size_t rack = 0; rack < racks_; ++rack) {
      hand_out_in_rack(rack, round, sums[rack]);
    }
  }
  return plan_.finish(Algorithm::kLevels);
}

}  // namespace

Plan plan_levels_all_reduce(const PlanTask& task) {
  return LevelsPlan(task).all_reduce();
}

}  // namespace spillway::collective
