// SPDX-License-Identifier: Apache-2.0
//
// All-reduce level by level, near ranks first. The world is a product of factors; a rank is a
// number whose digits have these factors as bases, the first digit the nearest: with 8 ranks and
// the factors 2, 2, 2, ranks 4 and 5 differ in the first digit, ranks 1 and 5 in the last.
//
// Every rank owns a shard. On each level a rank exchanges with its mates, the ranks that differ
// from it in that level's digit alone. Going up, it sends each mate its sums of the shards whose
// owners have the mate's digit, and adds up what it gets for its own digit: one level less to go,
// with fewer shards. After the last level it has the sum of its own shard. Going down, results
// take the same way back.
//
// A host's link carries 2 (n - 1) / n of the tensor, as in a direct exchange. But the higher the
// level, the less it carries: if racks are the last level, K of them, an uplink carries
// 2 (K - 1) / K of the tensor each way instead of 2 (n - n / K) / K.
//
// Factors before the last are powers of two, so that a level adds aligned runs of ranks, and sums
// have the bits of reduction.h's tree.
//
// Pieces flow by a window, as in a direct exchange: a rank sends a piece to a mate when the result
// of the piece a window before has come back from there. Pieces of all shards have one order, by
// round and owner, which is the same at all ranks and levels; a step waits for earlier pieces and
// its own alone.
#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <vector>

#include "collective/exact/plan.h"
#include "collective/exact/planner.h"
#include "collective/shards.h"

namespace spillway::collective {
namespace {

using wire::Phase;

class LevelsPlan {
 public:
  LevelsPlan(const PlanTask& task, const std::vector<std::uint16_t>& factors);

  Plan all_reduce();

 private:
  // A rank with which pieces are exchanged.
  struct Mate {
    std::uint16_t rank = 0;
    std::vector<StepId> came_back{};  // by message: its results, received
    std::vector<Span> scratch{};      // a ring of `window_` pieces
  };
  struct Level {
    std::size_t stride = 1;      // ranks from one mate to the next
    std::size_t digit = 0;       // this rank's
    std::size_t owners = 1;      // that this rank still adds up for behind it
    std::vector<Mate> mates{};   // by digit; this rank's own entry is unused
    std::vector<StepId> sums{};  // by message
  };

  static std::size_t piece_bytes_of(const PlanTask& task, std::uint16_t first_factor);
  static std::size_t window_of(const PlanTask& task, const std::vector<std::uint16_t>& factors,
                               std::size_t piece_bytes);

  // The owner with this rank's digits below `level`, `digit` there, and the index-th of those
  // above.
  std::size_t owner(const Level& level, std::size_t digit, std::size_t index) const {
    return task_.group.rank % level.stride + level.stride * (digit + level.mates.size() * index);
  }
  Span piece(Region region, std::size_t owner, std::size_t round) const {
    const Extent shard = shard_of(task_.operation.count, task_.group.world, owner);
    if (round >= piece_count(shard.count, piece_elements_)) {
      return {region, 0, 0};
    }
    const Extent extent = piece_of(shard, piece_elements_, round);
    return {region, extent.first * element_, extent.count * element_};
  }
  StepId before_window(const std::vector<StepId>& steps, std::size_t message) const {
    return message >= window_ ? steps[message - window_] : kNoStep;
  }
  Span scratch_for(Mate& mate, std::size_t message, std::size_t bytes);

  void go_up(std::size_t index, std::size_t round);
  void go_down(std::size_t index, std::size_t round);

  const PlanTask& task_;
  std::size_t element_;
  std::size_t piece_elements_;
  std::size_t window_;
  PlanBuilder plan_;
  std::vector<Level> levels_;
  // By owner, for the round that is being planned: the step after which its piece of the output
  // holds this rank's sum, or the result.
  std::vector<StepId> ready_;
};

// On the first level a rank has fewer mates than in a direct exchange, and more messages with each;
// so there is room for more of them at a time, and for still more if pieces are short.
std::size_t LevelsPlan::window_of(const PlanTask& task, const std::vector<std::uint16_t>& factors,
                                  std::size_t piece_bytes) {
  const std::size_t world = task.group.world;
  const std::size_t mates =
      std::accumulate(factors.begin(), factors.end(), std::size_t{0}) - factors.size();
  const std::size_t fewest = task.options.window;
  const std::size_t room =
      std::clamp(fewest * world / mates, fewest, fewest * world / factors.front());
  return room * std::max<std::size_t>(1, task.options.piece_bytes / piece_bytes);
}

// Bytes of a piece. Pieces of all owners behind the first level are numbered together. Levels work
// side by side, each on pieces of its own, all but the first and the last ones; a piece takes at
// least four hops, so there are more of them than where it takes two. But the shards of a host's
// ranks share its link, and travel side by side.
std::size_t LevelsPlan::piece_bytes_of(const PlanTask& task, std::uint16_t first_factor) {
  const std::size_t world = task.group.world;
  const std::size_t element = task.element_bytes();
  const std::size_t shard = shard_of(task.operation.count, world, 0).count * element;
  const std::size_t most = std::min(task.options.most_pieces, kMaxParts / (world / first_factor));
  const std::size_t on_a_link = shard * std::max<std::size_t>(task.options.host_ranks, 1);
  const std::size_t wanted =
      pipelined_piece_bytes(on_a_link / 2, kLeastPiece, task.options.piece_bytes);
  return piece_size(shard, element, wanted, task.options, most);
}

LevelsPlan::LevelsPlan(const PlanTask& task, const std::vector<std::uint16_t>& factors)
    : task_(task),
      element_(task.element_bytes()),
      piece_elements_(piece_bytes_of(task, factors.front()) / element_),
      window_(window_of(task, factors, piece_elements_ * element_)),
      plan_(window_),
      ready_(task.group.world, kNoStep) {
  std::size_t stride = 1;
  for (const std::uint16_t factor : factors) {
    Level& level = levels_.emplace_back();
    level.stride = stride;
    level.digit = task.group.rank / stride % factor;
    level.owners = task.group.world / (stride * factor);
    for (std::size_t digit = 0; digit < factor; ++digit) {
      const std::size_t mate = task.group.rank + digit * stride - level.digit * stride;
      level.mates.push_back({.rank = static_cast<std::uint16_t>(mate)});
    }
    stride *= factor;
  }
}

Span LevelsPlan::scratch_for(Mate& mate, std::size_t message, std::size_t bytes) {
  const std::size_t slot = message % window_;
  while (mate.scratch.size() <= slot) {
    mate.scratch.push_back(plan_.scratch(piece_elements_ * element_));
  }
  return {Region::kScratch, mate.scratch[slot].offset, bytes};
}

// Exchanges sums with the level's mates, and adds up. A result overwrites the memory from which its
// part was sent; it comes only after all of that part has arrived.
void LevelsPlan::go_up(std::size_t index, std::size_t round) {
  Level& level = levels_[index];
  const Region region = index == 0 ? Region::kInput : Region::kOutput;
  for (std::size_t i = 0; i < level.owners; ++i) {
    const std::size_t message = round * level.owners + i;
    const std::size_t own = owner(level, level.digit, i);
    const Span target = piece(Region::kOutput, own, round);
    std::vector<Span> sources(level.mates.size(), piece(region, own, round));
    std::vector<StepId> came = {ready_[own]};
    for (std::size_t distance = 1; distance < level.mates.size(); ++distance) {
      const std::size_t digit = (level.digit + distance) % level.mates.size();
      const std::size_t theirs = owner(level, digit, i);
      Mate& mate = level.mates[digit];
      // Receives first: what is sent below may be answered at once.
      if (target.bytes > 0) {
        sources[digit] = scratch_for(mate, message, target.bytes);
        came.push_back(plan_.receive(mate.rank, Phase::kReduce, message, sources[digit],
                                     {before_window(level.sums, message)}));
      }
      plan_.send(mate.rank, Phase::kReduce, message, piece(region, theirs, round),
                 {ready_[theirs], before_window(mate.came_back, message)});
      mate.came_back.push_back(
          plan_.receive(mate.rank, Phase::kGather, message, piece(Region::kOutput, theirs, round)));
    }
    const bool is_final = index + 1 == levels_.size();
    level.sums.push_back(target.bytes > 0 ? plan_.reduce(target, sources, is_final, came)
                                          : kNoStep);
    ready_[own] = level.sums.back();
  }
}

// Hands the level's mates the results of all owners that they sent sums of.
void LevelsPlan::go_down(std::size_t index, std::size_t round) {
  Level& level = levels_[index];
  for (std::size_t i = 0; i < level.owners; ++i) {
    const std::size_t message = round * level.owners + i;
    const std::size_t own = owner(level, level.digit, i);
    for (std::size_t distance = 1; distance < level.mates.size(); ++distance) {
      const std::size_t digit = (level.digit + distance) % level.mates.size();
      Mate& mate = level.mates[digit];
      plan_.send(mate.rank, Phase::kGather, message, piece(Region::kOutput, own, round),
                 {ready_[own]});
      ready_[owner(level, digit, i)] = mate.came_back[message];
    }
  }
}

Plan LevelsPlan::all_reduce() {
  const std::size_t longest = shard_of(task_.operation.count, task_.group.world, 0).count;
  for (std::size_t round = 0; round < piece_count(longest, piece_elements_); ++round) {
    std::fill(ready_.begin(), ready_.end(), kNoStep);
    for (std::size_t index = 0; index < levels_.size(); ++index) {
      go_up(index, round);
    }
    for (std::size_t index = levels_.size(); index-- > 0;) {
      go_down(index, round);
    }
  }
  return plan_.finish(Algorithm::kHierarchical);
}

}  // namespace

namespace {

// The levels that hosts and racks make, without the last one.
std::vector<std::uint16_t> near_factors(const Group& group, const PlanOptions& options) {
  std::vector<std::uint16_t> factors;
  std::uint16_t stride = 1;
  for (const std::uint16_t ranks : {options.host_ranks, options.rack_ranks}) {
    if (std::has_single_bit(ranks) && ranks > stride && group.world > ranks &&
        group.world % ranks == 0) {
      factors.push_back(static_cast<std::uint16_t>(ranks / stride));
      stride = ranks;
    }
  }
  return factors;
}

}  // namespace

bool has_near_ranks(const Group& group, const PlanOptions& options) {
  return !near_factors(group, options).empty();
}

std::vector<std::uint16_t> level_factors(const Group& group, const PlanOptions& options) {
  if (std::vector<std::uint16_t> near = near_factors(group, options); !near.empty()) {
    const std::uint16_t ranks =
        std::accumulate(near.begin(), near.end(), std::uint16_t{1}, std::multiplies<>());
    near.push_back(static_cast<std::uint16_t>(group.world / ranks));
    return near;
  }
  std::vector<std::uint16_t> factors;
  std::uint16_t rest = group.world;
  while (rest % 2 == 0 && rest > 0) {
    factors.push_back(2);
    rest /= 2;
  }
  if (rest > 1 && !factors.empty()) {
    factors.push_back(rest);
  }
  return factors.size() > 1 ? factors : std::vector<std::uint16_t>();
}

Plan plan_hierarchical_all_reduce(const PlanTask& task) {
  return LevelsPlan(task, level_factors(task.group, task.options)).all_reduce();
}

}  // namespace spillway::collective
