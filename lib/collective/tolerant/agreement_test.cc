// SPDX-License-Identifier: Apache-2.0
//
// Agreements between state machines over a network that delivers everything, sooner or later.
#include "collective/tolerant/agreement.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <tuple>

#include "base/random.h"

namespace spillway::collective {
namespace {

// All ranks of one agreement. Messages wait until the test delivers them.
class Assembly {
 public:
  Assembly(std::uint16_t world, std::uint16_t least, std::uint32_t step = 0) : world_(world) {
    for (std::uint16_t rank = 0; rank < world; ++rank) {
      ports_.push_back(std::make_unique<Port>(*this, rank));
      members_.push_back(
          std::make_unique<Agreement>(Group{rank, world}, step, least, *ports_.back()));
      ports_.back()->owner = members_.back().get();
      refuses_.push_back(false);
    }
  }

  Agreement& member(std::uint16_t rank) { return *members_[rank]; }

  ShardSet all_but(std::initializer_list<std::uint16_t> missing) const {
    ShardSet set = no_shards(world_);
    for (std::uint16_t shard = 0; shard < world_; ++shard) {
      if (std::find(missing.begin(), missing.end(), shard) == missing.end()) {
        add_shard(set, shard);
      }
    }
    return set;
  }

  // Delivers one waiting message, chosen by `pick`, unless its rank is paused.
  bool deliver_one(base::RandomSequence& random, const std::vector<bool>& paused) {
    std::vector<std::size_t> possible;
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      if (!paused[waiting_[i].to] && !paused[waiting_[i].from]) {
        possible.push_back(i);
      }
    }
    if (possible.empty()) {
      return false;
    }
    const std::size_t chosen = possible[random.next_below(possible.size())];
    const Message message = waiting_[chosen];
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(chosen));
    message.deliver();
    return true;
  }

 private:
  struct Message {
    std::uint16_t from;
    std::uint16_t to;
    std::function<void()> deliver;
  };

  class Port final : public AgreementPort {
   public:
    Port(Assembly& assembly, std::uint16_t rank) : assembly_(assembly), rank_(rank) {}

    void send_ready(std::uint16_t to, Coordinator coordinator,
                    const Readiness& readiness) override {
      note_once("READY", to, coordinator);
      assembly_.waiting_.push_back({rank_, to, [this, to, coordinator, readiness] {
                                      assembly_.members_[to]->on_ready(rank_, coordinator,
                                                                       readiness);
                                    }});
    }
    void send_proposal(std::uint16_t to, Coordinator coordinator, const ShardSet& shards) override {
      note_once("PROPOSAL", to, coordinator);
      assembly_.waiting_.push_back(
          {rank_, to, [this, to, coordinator, shards] {
             const bool refused = coordinator == Coordinator::kFirst && assembly_.refuses_[to];
             if (!refused) {
               assembly_.members_[to]->on_proposal(coordinator, shards);
             }
             // The answer takes its time too.
             assembly_.waiting_.push_back({to, rank_, [this, coordinator, refused] {
                                             owner->on_response(coordinator, !refused);
                                           }});
           }});
    }
    void send_commit(std::uint16_t to, Coordinator coordinator, const ShardSet& shards) override {
      note_once("COMMIT", to, coordinator);
      assembly_.waiting_.push_back(
          {rank_, to, [this, to, shards] { assembly_.members_[to]->on_commit(shards); }});
    }
    void refuse_first() override { assembly_.refuses_[rank_] = true; }

    Agreement* owner = nullptr;

   private:
    // A note is one message, so it is sent only once.
    void note_once(const char* what, std::uint16_t to, Coordinator coordinator) {
      EXPECT_TRUE(notes_.emplace(what, to, coordinator).second) << what << " twice to rank " << to;
    }

    Assembly& assembly_;
    std::uint16_t rank_;
    std::set<std::tuple<std::string, std::uint16_t, Coordinator>> notes_;
  };

  std::uint16_t world_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::vector<std::unique_ptr<Agreement>> members_;
  std::vector<bool> refuses_;
  std::vector<Message> waiting_;
};

TEST(Agreement, EverybodyReadyMeansEveryShardCounts) {
  Assembly assembly(5, 4);
  base::RandomSequence random(1);
  for (std::uint16_t rank = 0; rank < 5; ++rank) {
    assembly.member(rank).on_own_ready(assembly.all_but({}));
  }
  while (assembly.deliver_one(random, std::vector<bool>(5))) {
  }
  for (std::uint16_t rank = 0; rank < 5; ++rank) {
    ASSERT_EQ(assembly.member(rank).decision(), assembly.all_but({}));
  }
}

TEST(Agreement, ALateOwnersShardIsLeftOutOnceEnoughAreReady) {
  Assembly assembly(4, 3);
  base::RandomSequence random(1);
  std::vector<bool> paused(4);
  paused[3] = true;
  for (const std::uint16_t rank : {0, 1, 2}) {
    assembly.member(rank).on_own_ready(assembly.all_but({3}));
  }
  while (assembly.deliver_one(random, paused)) {
  }
  EXPECT_FALSE(assembly.member(1).decision());  // nobody's patience is over
  assembly.member(0).on_wait_over();
  while (assembly.deliver_one(random, paused)) {
  }
  for (const std::uint16_t rank : {0, 1, 2}) {
    ASSERT_EQ(assembly.member(rank).decision(), assembly.all_but({3}));
  }
  paused[3] = false;
  assembly.member(3).on_own_ready(assembly.all_but({}));
  while (assembly.deliver_one(random, paused)) {
  }
  EXPECT_EQ(assembly.member(3).decision(), assembly.all_but({3}));
}

TEST(Agreement, ALateChairStopsNobody) {
  for (const std::uint16_t late : {0, 1}) {  // the first, the second
    Assembly assembly(4, 3);
    base::RandomSequence random(1);
    std::vector<bool> paused(4);
    paused[late] = true;
    const auto settle = [&] {
      while (assembly.deliver_one(random, paused)) {
      }
    };
    for (std::uint16_t rank = 0; rank < 4; ++rank) {
      if (rank != late) {
        assembly.member(rank).on_own_ready(assembly.all_but({late}));
      }
    }
    settle();
    for (std::uint16_t rank = 0; rank < 4; ++rank) {
      if (rank != late) {
        assembly.member(rank).on_wait_over();
      }
    }
    settle();
    if (late == 0) {
      for (const std::uint16_t rank : {1, 2, 3}) {
        assembly.member(rank).on_first_late();
      }
      settle();
    }
    for (std::uint16_t rank = 0; rank < 4; ++rank) {
      if (rank != late) {
        ASSERT_EQ(assembly.member(rank).decision(), assembly.all_but({late})) << "late " << late;
      }
    }
  }
}

TEST(Agreement, NobodyIsLeftBehindWhileTooFewAreReady) {
  Assembly assembly(4, 3);
  base::RandomSequence random(1);
  assembly.member(0).on_own_ready(assembly.all_but({2, 3}));
  assembly.member(1).on_own_ready(assembly.all_but({2, 3}));
  assembly.member(0).on_wait_over();
  while (assembly.deliver_one(random, std::vector<bool>(4))) {
  }
  EXPECT_FALSE(assembly.member(0).decision());
}

// Ranks pause and continue at random, clocks run out at random: all ranks that decide decide the
// same, and in the end all have decided.
TEST(Agreement, HoldsWhateverIsLate) {
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    base::RandomSequence random(seed);
    const auto world = static_cast<std::uint16_t>(2 + random.next_below(6));
    const auto least = static_cast<std::uint16_t>(1 + random.next_below(world));
    Assembly assembly(world, least, static_cast<std::uint32_t>(random.next_below(100)));
    std::vector<bool> paused(world);
    std::vector<bool> ready(world);
    for (int step = 0; step < 400; ++step) {
      const auto rank = static_cast<std::uint16_t>(random.next_below(world));
      switch (random.next_below(8)) {
        case 0:
          paused[rank] = !paused[rank];
          break;
        case 1:
          if (!ready[rank] && !paused[rank]) {
            ready[rank] = true;
            const auto missing = static_cast<std::uint16_t>(random.next_below(world));
            assembly.member(rank).on_own_ready(
                random.next_below(2) == 0 ? assembly.all_but({missing}) : assembly.all_but({}));
          }
          break;
        case 2:
          if (!paused[rank]) {
            assembly.member(rank).on_wait_over();
          }
          break;
        case 3:
          if (!paused[rank]) {
            assembly.member(rank).on_first_late();
          }
          break;
        default:
          assembly.deliver_one(random, paused);
      }
      std::optional<ShardSet> decided;
      for (std::uint16_t each = 0; each < world; ++each) {
        const std::optional<ShardSet>& decision = assembly.member(each).decision();
        if (decision) {
          ASSERT_EQ(decided.value_or(*decision), *decision) << "seed " << seed;
          decided = decision;
        }
      }
    }
    // All ranks continue in the end.
    std::fill(paused.begin(), paused.end(), false);
    for (std::uint16_t rank = 0; rank < world; ++rank) {
      if (!ready[rank]) {
        assembly.member(rank).on_own_ready(assembly.all_but({}));
      }
    }
    for (int round = 0; round < 2; ++round) {
      while (assembly.deliver_one(random, paused)) {
      }
      for (std::uint16_t rank = 0; rank < world; ++rank) {
        assembly.member(rank).on_wait_over();
        assembly.member(rank).on_first_late();
      }
    }
    while (assembly.deliver_one(random, paused)) {
    }
    std::optional<ShardSet> decided;
    for (std::uint16_t rank = 0; rank < world; ++rank) {
      const std::optional<ShardSet>& decision = assembly.member(rank).decision();
      ASSERT_TRUE(decision) << "rank " << rank << " of " << world << ", seed " << seed;
      ASSERT_EQ(decided.value_or(*decision), *decision) << "seed " << seed;
      decided = decision;
    }
  }
}

}  // namespace
}  // namespace spillway::collective
