// SPDX-License-Identifier: Apache-2.0
//
// All-reduce through parameter servers: shard j of the tensor belongs to server j. Piece by piece,
// every worker sends its part of a shard to the shard's server (push). The server adds up by rank
// and sends the sum to every worker (pull).
//
// Pieces flow by a window, as in a direct exchange: a worker sends piece k to a server when that
// server's sum of piece k - W has come back. A server has scratch for W pieces of every worker and
// W sums; a sum's place is free again when all workers have it.
#include <vector>

#include "collective/exact/plan.h"
#include "collective/exact/planner.h"
#include "collective/shards.h"

namespace spillway::collective {
namespace {

using wire::Phase;

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
                      pipelined_piece_bytes(shard_bytes, kLeastPiece, task_.options.piece_bytes),
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
