// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "collective/exact/plan.h"
#include "collective/exact/planner.h"
#include "collective/shards.h"

namespace spillway::collective {

// All-reduce in two levels, for racks whose uplinks carry less than their hosts' links together.
// Racks have the same number of ranks, which are numbered side by side; a rank has a local_rank in
// its rack.
//
// Shard j of the tensor belongs to local_rank j of every rack, and part k of it to the rank of that
// local_rank in rack k:
//
//   in the rack     every rank sends its part of a shard to the shard's local_rank, which adds up
//   by rank between racks   ranks of one local_rank do the same with the parts of these sums, which
//   are added up
//                   by rack, and get the others' parts back
//   in the rack     every local_rank hands its shard out, part by part as it comes
//
// A host's link carries as much as in a direct exchange, 2 (n - 1) / n of the tensor. With n ranks
// in K racks, an uplink carries 2 (K - 1) / K of it each way instead of 2 (n - n / K) / K: half as
// much for n = 4 and K = 2.
//
// Pieces flow by a window, as in a direct exchange: a rank sends a piece to its owner when the
// owner's piece a window before has come back.

namespace {

using wire::Phase;

class HierarchicalPlan {
 public:
  explicit HierarchicalPlan(const PlanTask& task)
      : task_(task),
        element_(task.element_bytes()),
        rack_size_(task.options.rack_ranks),
        racks_(task.group.world / rack_size_),
        local_rank_(task.group.rank % rack_size_),
        rack_(task.group.rank / rack_size_),
        piece_elements_(piece_elements(part(0, 0).count)),
        window_(window_of(task)),
        plan_(window_),
        mates_(rack_size_),
        others_(racks_) {}

  Plan all_reduce();

 private:
  // A rank with which pieces are exchanged, of the same rack or the same local_rank.
  struct Partner {
    std::vector<StepId> came_back;  // by message: its sums, received
    std::vector<Span> scratch;      // a ring of `window_` pieces
  };

  // In a rack a piece takes as many messages as there are racks. There are fewer partners than in a
  // direct exchange, so there is room for more messages with each at a time.
  static std::size_t window_of(const PlanTask& task) {
    const std::size_t rack_size = task.options.rack_ranks;
    const std::size_t racks = task.group.world / rack_size;
    const std::size_t room = task.options.window * task.group.world / (rack_size + racks - 2);
    return std::clamp(room, task.options.window, task.options.window * racks);
  }
  std::uint16_t rank_of(std::size_t rack, std::size_t local_rank) const {
    return static_cast<std::uint16_t>(rack * rack_size_ + local_rank);
  }
  // The part of a local_rank's shard that belongs to a rack.
  Extent part(std::size_t local_rank, std::size_t rack) const {
    const Extent shard = shard_of(task_.operation.count, rack_size_, local_rank);
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
  Span piece(Region region, std::size_t local_rank, std::size_t rack, std::size_t round) const {
    const Extent whole = part(local_rank, rack);
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
  std::size_t rack_size_;
  std::size_t racks_;
  std::size_t local_rank_;
  std::size_t rack_;
  std::size_t piece_elements_;
  std::size_t window_;
  PlanBuilder plan_;
  std::vector<Partner> mates_;      // by local_rank
  std::vector<Partner> others_;     // by rack
  std::vector<StepId> rack_sums_;   // by message in the rack
  std::vector<StepId> whole_sums_;  // by round: sum of this rank's part
};

Span HierarchicalPlan::scratch_for(Partner& partner, std::size_t message, std::size_t bytes) {
  const std::size_t slot = message % window_;
  while (partner.scratch.size() <= slot) {
    partner.scratch.push_back(plan_.scratch(piece_elements_ * element_));
  }
  return {Region::kScratch, partner.scratch[slot].offset, bytes};
}

// Sends this rank's contributions to its mates. Adds theirs to its own shard's piece for `rack`,
// where the result will be.
StepId HierarchicalPlan::add_up_in_rack(std::size_t rack, std::size_t round) {
  const std::size_t message = round * racks_ + rack;
  const Span own = piece(Region::kInput, local_rank_, rack, round);
  std::vector<Span> sources(rack_size_, own);
  std::vector<StepId> came;
  for (std::size_t distance = 1; distance < rack_size_; ++distance) {
    const std::size_t local_rank = (local_rank_ + distance) % rack_size_;
    Partner& mate = mates_[local_rank];
    if (own.bytes > 0) {
      sources[local_rank] = scratch_for(mate, message, own.bytes);
      came.push_back(plan_.receive(rank_of(rack_, local_rank), Phase::kReduce, message,
                                   sources[local_rank], {before_window(rack_sums_, message)}));
    }
    plan_.send(rank_of(rack_, local_rank), Phase::kReduce, message,
               piece(Region::kInput, local_rank, rack, round),
               {before_window(mate.came_back, message)});
    mate.came_back.push_back(plan_.receive(rank_of(rack_, local_rank), Phase::kGather, message,
                                           piece(Region::kOutput, local_rank, rack, round)));
  }
  rack_sums_.push_back(plan_.reduce(piece(Region::kOutput, local_rank_, rack, round), sources,
                                    /*is_final=*/false, came));
  return rack_sums_.back();
}

// Adds the other racks' sums of this rank's own part to its rack's.
StepId HierarchicalPlan::add_up_racks(std::size_t round, StepId own) {
  const Span target = piece(Region::kOutput, local_rank_, rack_, round);
  std::vector<Span> sources(racks_, target);
  std::vector<StepId> came = {own};
  for (std::size_t distance = 1; distance < racks_ && target.bytes > 0; ++distance) {
    const std::size_t rack = (rack_ + distance) % racks_;
    sources[rack] = scratch_for(others_[rack], round, target.bytes);
    came.push_back(plan_.receive(rank_of(rack, local_rank_), Phase::kReduce, round, sources[rack],
                                 {before_window(whole_sums_, round)}));
  }
  whole_sums_.push_back(plan_.reduce(target, sources, /*is_final=*/true, came));
  return whole_sums_.back();
}

// `sums`: by rack, of this rank's shard; before the call those of this rack, then those of all
// ranks.
void HierarchicalPlan::exchange_with_racks(std::size_t round, std::vector<StepId>& sums) {
  sums[rack_] = add_up_racks(round, sums[rack_]);
  for (std::size_t distance = 1; distance < racks_; ++distance) {
    const std::size_t rack = (rack_ + distance) % racks_;
    const std::uint16_t peer = rank_of(rack, local_rank_);
    const Span theirs = piece(Region::kOutput, local_rank_, rack, round);
    plan_.send(peer, Phase::kReduce, round, theirs,
               {sums[rack], before_window(others_[rack].came_back, round)});
    // Received into the memory that is sent from: the result comes only after all of that has
    // arrived.
    others_[rack].came_back.push_back(plan_.receive(peer, Phase::kGather, round, theirs));
    plan_.send(peer, Phase::kGather, round, piece(Region::kOutput, local_rank_, rack_, round),
               {sums[rack_]});
    sums[rack] = others_[rack].came_back.back();
  }
}

void HierarchicalPlan::hand_out_in_rack(std::size_t rack, std::size_t round, StepId sum) {
  for (std::size_t distance = 1; distance < rack_size_; ++distance) {
    plan_.send(rank_of(rack_, (local_rank_ + distance) % rack_size_), Phase::kGather,
               round * racks_ + rack, piece(Region::kOutput, local_rank_, rack, round), {sum});
  }
}

Plan HierarchicalPlan::all_reduce() {
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
  return plan_.finish(Algorithm::kHierarchical);
}

}  // namespace

Plan plan_hierarchical_all_reduce(const PlanTask& task) {
  return HierarchicalPlan(task).all_reduce();
}

// All-reduce through parameter servers: shard j of the tensor belongs to server j. Piece by piece,
// every worker sends its part of a shard to the shard's server (push). The server adds up by rank
// and sends the sum to every worker (pull).
//
// Pieces flow by a window, as in a direct exchange: a worker sends piece k to a server when that
// server's sum of piece k - W has come back. A server has scratch for W pieces of every worker and
// W sums; a sum's place is free again when all workers have it.

namespace {

using wire::Phase;

// Less is not worth a message.
constexpr std::size_t kLeastPiece = 16 * 1024;

class ServersPlan {
 public:
  explicit ServersPlan(const PlanTask& task)
      : task_(task),
        element_(task.element_bytes()),
        piece_elements_(piece_bytes(shard(0).count * element_) / element_),
        workers_(task.group.workers()),
        plan_(task.options.window) {}

  Plan of_worker();
  Plan of_server();

 private:
  Extent shard(std::uint16_t server) const {
    return shard_of(task_.operation.count, task_.group.servers, server);
  }
  std::size_t piece_bytes(std::size_t shard_bytes) const {
    return piece_size(shard_bytes, element_,
                      server_piece_bytes(shard_bytes, kLeastPiece, task_.options.piece_bytes),
                      task_.options, task_.options.most_pieces);
  }
  std::size_t rounds(const Extent& shard) const {
    return piece_count(shard.count, piece_elements_);
  }
  Span span(Region region, const Extent& extent) const {
    return {region, extent.first * element_, extent.count * element_};
  }
  std::uint16_t rank_of(std::uint16_t server) const {
    return static_cast<std::uint16_t>(workers_ + server);
  }
  bool is_beyond_window(std::size_t round) const { return round >= task_.options.window; }

  void push_and_pull(std::uint16_t server, std::size_t round);
  Span place(std::vector<Span>& ring, std::size_t round, std::size_t bytes);
  StepId collect(std::size_t round, const Span& target);
  void hand_out(std::size_t round, const Span& sum, StepId formed);

  const PlanTask& task_;
  std::size_t element_;
  std::size_t piece_elements_;
  std::uint16_t workers_;
  PlanBuilder plan_;
  std::vector<std::vector<StepId>> came_back_;    // worker: by server and round, its sum
  std::vector<StepId> formed_;                    // server: by round, the sum
  std::vector<std::vector<StepId>> handed_out_;   // server: by round, to every worker
  std::vector<std::vector<Span>> contributions_;  // by worker: a ring of `window` pieces
  std::vector<Span> sums_;                        // the same
};

void ServersPlan::push_and_pull(std::uint16_t server, std::size_t round) {
  const Extent part = piece_of(shard(server), piece_elements_, round);
  std::vector<StepId>& sums = came_back_[server];
  const StepId has_room = is_beyond_window(round) ? sums[round - task_.options.window] : kNoStep;
  // Expected first: the answer may be quick.
  sums.push_back(
      plan_.receive(rank_of(server), Phase::kGather, round, span(Region::kOutput, part)));
  plan_.send(rank_of(server), Phase::kReduce, round, span(Region::kInput, part), {has_room});
}

Plan ServersPlan::of_worker() {
  const std::uint16_t servers = task_.group.servers;
  came_back_.resize(servers);
  for (std::size_t round = 0; round < rounds(shard(0)); ++round) {
    // Each worker begins with another server, so that not all send to one at once.
    for (unsigned i = 0; i < servers; ++i) {
      const auto server = static_cast<std::uint16_t>((task_.group.rank + i) % servers);
      if (round < rounds(shard(server))) {
        push_and_pull(server, round);
      }
    }
  }
  return plan_.finish(Algorithm::kServers);
}

Span ServersPlan::place(std::vector<Span>& ring, std::size_t round, std::size_t bytes) {
  const std::size_t slot = round % task_.options.window;
  if (ring.size() <= slot) {
    ring.push_back(plan_.scratch(bytes));  // the first pieces are the longest
  }
  return {Region::kScratch, ring[slot].offset, bytes};
}

// Receives every worker's part of the piece and adds them up, by rank.
StepId ServersPlan::collect(std::size_t round, const Span& target) {
  const bool reuses = is_beyond_window(round);
  const std::size_t before = reuses ? round - task_.options.window : 0;
  std::vector<Span> sources;
  std::vector<StepId> after = reuses ? handed_out_[before] : std::vector<StepId>();
  for (std::uint16_t worker = 0; worker < workers_; ++worker) {
    sources.push_back(place(contributions_[worker], round, target.bytes));
    after.push_back(plan_.receive(worker, Phase::kReduce, round, sources.back(),
                                  {reuses ? formed_[before] : kNoStep}));
  }
  return plan_.reduce(target, sources, /*is_final=*/true, after);
}

void ServersPlan::hand_out(std::size_t round, const Span& sum, StepId formed) {
  std::vector<StepId>& sent = handed_out_.emplace_back();
  for (std::uint16_t worker = 0; worker < workers_; ++worker) {
    sent.push_back(plan_.send(worker, Phase::kGather, round, sum, {formed}));
  }
}

Plan ServersPlan::of_server() {
  contributions_.resize(workers_);
  const Extent mine = shard(static_cast<std::uint16_t>(task_.group.rank - workers_));
  for (std::size_t round = 0; round < rounds(mine); ++round) {
    const std::size_t bytes = piece_of(mine, piece_elements_, round).count * element_;
    const Span sum = place(sums_, round, bytes);
    formed_.push_back(collect(round, sum));
    hand_out(round, sum, formed_.back());
  }
  return plan_.finish(Algorithm::kServers);
}

}  // namespace

Plan plan_servers_all_reduce(const PlanTask& task) {
  ServersPlan plan(task);
  return task.group.is_server() ? plan.of_server() : plan.of_worker();
}

}  // namespace spillway::collective
