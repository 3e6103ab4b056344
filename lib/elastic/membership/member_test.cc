// SPDX-License-Identifier: Apache-2.0
#include "elastic/membership/member.h"

#include <gtest/gtest.h>

#include "elastic/membership/member_testing.h"

namespace spillway::membership {
namespace {

using Ids = std::vector<MemberId>;

bool says(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(Member, AStandbyTakesTheDeadOnesPlaceAtTheGreatestStep) {
  Cluster cluster({}, 4, 1);
  cluster.all_begin(7);
  cluster.step_[1] = 8;
  cluster.kill(3);
  const View expected{.epoch = 2, .ranks = {1, 2, 5, 4}, .standbys = {}};
  for (const MemberId id : Ids{1, 2, 4, 5}) {
    const auto decided = cluster.seen<Decided>(id);
    ASSERT_EQ(decided.size(), 1U) << id;
    const Decision& decision = decided.front().decision;
    EXPECT_EQ(decision.view, expected);
    EXPECT_EQ(decision.step, 8U);
    EXPECT_EQ(decision.sources, std::vector<std::uint32_t>{0});
    EXPECT_EQ(decision.handles[0], Cluster::handle(1, 1));
    EXPECT_EQ(decision.handles[2], Cluster::handle(5, 1));
    EXPECT_EQ(decision.why, "rank 2 is gone: its connection closed");
    EXPECT_EQ(cluster.at(id).view(), expected);
    EXPECT_EQ(cluster.at(id).waits_for(cluster.now()), "");
  }
  EXPECT_TRUE(cluster.seen<Interrupt>(5).empty());  // a standby has nothing to stop
}

TEST(Member, TheFirstVoterMayDieToo) {
  Cluster cluster({}, 3, 2);
  cluster.kill(1);
  EXPECT_EQ(cluster.at(2).view().ranks, (Ids{4, 2, 3}));
  cluster.kill(4);
  EXPECT_EQ(cluster.at(2).view().ranks, (Ids{5, 2, 3}));
  EXPECT_EQ(cluster.at(5).view().epoch, 3U);
}

TEST(Member, ASilentOneIsMissedWithinTheLimit) {
  Cluster cluster({}, 8, 1);
  for (MemberId other = 1; other <= 9; ++other) {
    if (other != 4) {
      cluster.cut(4, other);
    }
  }
  cluster.run(base::milliseconds(1900));
  EXPECT_EQ(cluster.at(1).view().epoch, 1U);
  cluster.run(base::milliseconds(800));
  EXPECT_EQ(cluster.at(1).view().ranks, (Ids{1, 2, 3, 9, 5, 6, 7, 8}));
  EXPECT_TRUE(
      says(cluster.seen<Decided>(1).front().decision.why, "nothing came from it for 2.0 s"));
  cluster.run(base::seconds(15));
  EXPECT_TRUE(says(cluster.dismissal(4), "1 of 9 members are in reach, 5 are needed"))
      << cluster.dismissal(4);
}

TEST(Member, OneThatComesBackIsToldToLeave) {
  Cluster cluster({}, 4, 1);
  for (MemberId other = 2; other <= 5; ++other) {
    cluster.cut(1, other);
  }
  cluster.run(base::seconds(4));
  EXPECT_EQ(cluster.at(2).view().ranks, (Ids{5, 2, 3, 4}));
  EXPECT_EQ(cluster.dismissal(1), "");
  cluster.heal();
  cluster.run(base::seconds(1));
  EXPECT_TRUE(says(cluster.dismissal(1), "the job is in epoch 2, without this process"))
      << cluster.dismissal(1);
}

TEST(Member, OfTwoHalvesTheOneWithTheFirstGoesOn) {
  MemberConfig config;
  config.size.may_shrink = true;
  Cluster cluster(config, 4, 0);
  for (const MemberId a : Ids{1, 2}) {
    for (const MemberId b : Ids{3, 4}) {
      cluster.cut(a, b);
    }
  }
  cluster.run(base::seconds(16));
  EXPECT_EQ(cluster.at(1).view(), (View{.epoch = 2, .ranks = {1, 2}, .standbys = {}}));
  EXPECT_EQ(cluster.at(2).view().epoch, 2U);
  for (const MemberId id : Ids{3, 4}) {
    EXPECT_TRUE(cluster.seen<Decided>(id).empty());
    EXPECT_EQ(cluster.seen<Interrupt>(id).size(), 1U);
    EXPECT_TRUE(says(cluster.dismissal(id), "2 of 4 members are in reach, 3 are needed"));
  }
}

TEST(Member, WithoutStandbysTheJobEndsOrShrinks) {
  Cluster ends({}, 4, 0);
  ends.kill(2);
  for (const MemberId id : Ids{1, 3, 4}) {
    EXPECT_EQ(ends.seen<Decided>(id).front().decision.outcome, Outcome::kEnds);
    EXPECT_EQ(ends.dismissal(id),
              "more ranks are gone than there are standbys, and the job may not shrink: rank 1 is "
              "gone: its connection closed");
  }
  MemberConfig config;
  config.size.may_shrink = true;
  config.size.min_ranks = 3;
  Cluster shrinks(config, 4, 0);
  shrinks.kill(2);
  EXPECT_EQ(shrinks.at(1).view().ranks, (Ids{1, 3, 4}));
  shrinks.kill(3);
  EXPECT_TRUE(says(shrinks.dismissal(4), "2 ranks are left, and the job needs 3"));
}

TEST(Member, TheDriverMayDieAtAnyTime) {
  Cluster cluster({}, 4, 2);
  cluster.slow_ = {3};  // so that the driver has to wait
  cluster.kill(4);
  EXPECT_TRUE(says(cluster.at(1).waits_for(cluster.now()), "rank 2 to end its step"));
  EXPECT_TRUE(says(cluster.at(2).waits_for(cluster.now()), "rank 0, which drives the change"));
  cluster.kill(1);
  EXPECT_EQ(cluster.at(2).view().epoch, 1U);
  cluster.park(3);
  cluster.settle();
  EXPECT_EQ(cluster.at(2).view().ranks, (Ids{5, 2, 3, 6}));
}

TEST(Member, ARankThatDoesNotStopCountsAsGone) {
  MemberConfig config;
  config.park_limit = base::seconds(5);
  Cluster cluster(config, 4, 2);
  cluster.slow_ = {3};
  cluster.kill(4);
  cluster.run(base::seconds(6));
  EXPECT_EQ(cluster.at(1).view().ranks, (Ids{1, 2, 5, 6}));
  EXPECT_TRUE(says(cluster.seen<Decided>(1).front().decision.why,
                   "rank 2 is gone: it did not stop its step in time"));
  EXPECT_TRUE(says(cluster.dismissal(3), "no place in epoch 2"));
}

TEST(Member, AMoveHaltsAtTheBeginningOfALaterStep) {
  Cluster cluster({}, 4, 1);
  cluster.all_begin(10);
  ASSERT_TRUE(cluster.at(3)
                  .ask({.kind = RequestKind::kMove, .ranks = {1}, .why = "upkeep"}, cluster.now())
                  .ok());
  cluster.settle();
  EXPECT_EQ(cluster.seen<Interrupt>(4).front().at_step, 12U);
  EXPECT_EQ(cluster.at(3).view(), (View{.epoch = 2, .ranks = {1, 5, 3, 4}, .standbys = {2}}));
  const Decision decision = cluster.seen<Decided>(3).front().decision;
  EXPECT_EQ(decision.step, 12U);
  EXPECT_EQ(decision.sources, (std::vector<std::uint32_t>{0, 2, 3}));
  EXPECT_EQ(decision.why, "rank 1 moves: upkeep");
  ASSERT_EQ(cluster.seen<Answered>(3).size(), 1U);
  EXPECT_TRUE(cluster.seen<Answered>(3).front().ok);
  // The reverse: the rank that moved is now a standby.
  ASSERT_TRUE(cluster.at(1)
                  .ask({.kind = RequestKind::kRemove, .ranks = {0, 1}, .why = ""}, cluster.now())
                  .ok());
  cluster.settle();
  EXPECT_TRUE(
      says(cluster.seen<Answered>(1).front().text, "1 standbys are in reach and 2 are needed"));
  ASSERT_TRUE(cluster.at(1)
                  .ask({.kind = RequestKind::kRemove, .ranks = {0}, .why = ""}, cluster.now())
                  .ok());
  cluster.settle();
  EXPECT_EQ(cluster.at(2).view().ranks, (Ids{2, 5, 3, 4}));
  EXPECT_TRUE(says(cluster.dismissal(1), "no place in epoch 3: rank 0 is removed"));
}

TEST(Member, WhoHasBegunTheStepMakesAllHaltAtOnce) {
  Cluster cluster({}, 3, 1);
  cluster.all_begin(10);
  cluster.slow_ = {1, 2, 3};
  cluster.at(2).on_step(13, base::milliseconds(1), cluster.now());
  ASSERT_TRUE(cluster.at(1).ask({.kind = RequestKind::kMove, .ranks = {2}}, cluster.now()).ok());
  cluster.settle();
  const auto interrupts = cluster.seen<Interrupt>(3);
  ASSERT_EQ(interrupts.size(), 2U);
  EXPECT_EQ(interrupts[0].at_step, 12U);
  EXPECT_EQ(interrupts[1].at_step, std::nullopt);
  EXPECT_EQ(cluster.seen<Interrupt>(2).size(), 1U);
}

TEST(Member, WrongRequestsAreRefusedWithASentence) {
  Cluster cluster({}, 3, 0);
  EXPECT_TRUE(says(cluster.at(1).ask({.ranks = {3}}, cluster.now()).message(), "from 0 to 2"));
  EXPECT_TRUE(
      says(cluster.at(1).ask({.ranks = {0, 1, 2}}, cluster.now()).message(), "at least one"));
  ASSERT_TRUE(cluster.at(2).ask({.ranks = {1}}, cluster.now()).ok());
  cluster.settle();
  EXPECT_TRUE(says(cluster.seen<Answered>(2).front().text, "0 standbys are in reach"));
  EXPECT_EQ(cluster.at(1).view().epoch, 1U);
}

// A standby says that it is parked just after it was called in. It has already used the handle that
// it names and does not know yet that it trains.
TEST(Member, WhatIsSaidOfAnEpochThatIsOverIsNotHeard) {
  Cluster cluster({}, 3, 1);
  cluster.kill(2);
  cluster.settle();
  ASSERT_EQ(cluster.at(4).view(), (View{.epoch = 2, .ranks = {1, 4, 3}, .standbys = {}}));
  cluster.at(4).on_parked(1, {.has_state = false}, {7}, cluster.now());
  cluster.settle();
  EXPECT_EQ(cluster.at(4).view().epoch, 2U);
  cluster.at(4).on_parked(2, {.has_state = false}, {8}, cluster.now());
  cluster.settle();
  EXPECT_EQ(cluster.at(4).view().epoch, 3U);
  EXPECT_EQ(cluster.seen<Decided>(1).back().decision.handles[1], (Handle{8}));
}

TEST(Member, StandbysBecomeRanksWhenTheJobIsAskedToGrow) {
  Cluster cluster({}, 3, 2);
  cluster.all_begin(4);
  ASSERT_TRUE(cluster.at(2).ask({.kind = RequestKind::kGrow, .places = 3}, cluster.now()).ok());
  cluster.settle();
  EXPECT_TRUE(says(cluster.seen<Answered>(2).front().text, "2 standbys are in reach and 3 are"));
  ASSERT_TRUE(cluster.at(2).ask({.kind = RequestKind::kGrow, .places = 1}, cluster.now()).ok());
  cluster.settle();
  EXPECT_EQ(cluster.at(4).view(), (View{.epoch = 2, .ranks = {1, 2, 3, 4}, .standbys = {5}}));
  EXPECT_EQ(cluster.seen<Answered>(2).back().text, "done in epoch 2: the job grows by 1");

  MemberConfig config;
  config.size.may_grow = false;
  Cluster fixed(config, 2, 1);
  EXPECT_TRUE(
      says(fixed.at(1).ask({.kind = RequestKind::kGrow, .places = 1}, fixed.now()).message(),
           "made not to grow"));
}

TEST(Member, AJobEndsWhenItIsAskedTo) {
  Cluster cluster({}, 3, 1);
  ASSERT_TRUE(cluster.at(2)
                  .ask({.kind = RequestKind::kEnd, .ranks = {99}, .why = "enough"}, cluster.now())
                  .ok());
  cluster.settle();
  for (MemberId id = 1; id <= 4; ++id) {
    EXPECT_EQ(cluster.dismissal(id), "the job was asked to end: enough");
  }
}

TEST(Member, NewcomersAreCalledIn) {
  Cluster cluster({}, 4, 0);
  cluster.add(9);
  cluster.settle();
  EXPECT_EQ(cluster.at(9).view().epoch, 1U);
  EXPECT_TRUE(cluster.seen<Decided>(9).empty());  // no rank stops for it
  cluster.kill(2);
  EXPECT_EQ(cluster.at(9).view(), (View{.epoch = 2, .ranks = {1, 9, 3, 4}, .standbys = {}}));
  EXPECT_EQ(cluster.seen<Decided>(9).size(), 1U);
}

TEST(Member, SmallJobsTakeNewcomersInAtAStepsEdge) {
  Cluster cluster({}, 2, 0);
  cluster.add(9);
  cluster.settle();
  EXPECT_EQ(cluster.at(9).view(), (View{.epoch = 2, .ranks = {1, 2}, .standbys = {9}}));
  EXPECT_TRUE(cluster.seen<Interrupt>(1).front().at_step.has_value());
  cluster.kill(1);
  EXPECT_EQ(cluster.at(2).view().ranks, (Ids{9, 2}));
}

TEST(Member, LostStandbysStopNobodyUntilTheyAreMissed) {
  Cluster cluster({}, 4, 4);
  cluster.kill(8);
  cluster.kill(7);
  cluster.run(base::seconds(1));
  EXPECT_TRUE(cluster.seen<Interrupt>(1).empty());
  cluster.kill(6);  // five of eight are left; one more loss would be too many
  EXPECT_EQ(cluster.at(1).view(), (View{.epoch = 2, .ranks = {1, 2, 3, 4}, .standbys = {5}}));
}

TEST(Member, AJobThatIsDoneMissesNobody) {
  Cluster cluster({}, 3, 1);
  cluster.at(1).leave(true, cluster.now());
  cluster.settle();
  EXPECT_EQ(cluster.dismissal(1), "");
  cluster.kill(1);
  cluster.at(2).leave(true, cluster.now());
  cluster.run(base::seconds(20));
  EXPECT_TRUE(cluster.seen<Interrupt>(3).empty());
  EXPECT_EQ(cluster.dismissal(3), "");
  cluster.at(3).leave(true, cluster.now());
  cluster.settle();
  for (const MemberId id : Ids{2, 3, 4}) {
    EXPECT_EQ(cluster.dismissal(id), "the job is done");
  }
}

TEST(Member, AFarewellThatDidNotArriveIsMadeUpForByTheOtherRanks) {
  Cluster cluster({}, 3, 1);
  cluster.cut(1, 4);
  cluster.at(1).leave(true, cluster.now());
  cluster.settle();
  cluster.heal();
  cluster.at(2).leave(true, cluster.now());
  cluster.at(3).leave(true, cluster.now());
  cluster.settle();
  EXPECT_EQ(cluster.dismissal(3), "the job is done");
  cluster.kill(1);
  cluster.run(base::seconds(1));
  EXPECT_EQ(cluster.dismissal(4), "the job is done");
}

TEST(Member, OneThatLeavesEarlyIsReplacedAtOnce) {
  Cluster cluster({}, 3, 1);
  cluster.at(2).leave(false, cluster.now());
  cluster.settle();
  EXPECT_EQ(cluster.at(1).view().ranks, (Ids{1, 4, 3}));
  EXPECT_EQ(cluster.seen<Decided>(1).front().decision.why, "rank 1 is gone: it left");
}

TEST(Member, AFailedOperationLeadsToTheSameRanksAgainAndThenToFewer) {
  Cluster cluster({}, 4, 1);
  for (std::uint32_t epoch = 2; epoch <= 5; ++epoch) {
    cluster.at(2).on_lost(3, LossCause::kData, cluster.now());
    cluster.run(base::seconds(8));
    EXPECT_EQ(cluster.at(2).view().epoch, epoch);
    EXPECT_EQ(cluster.at(1).view().ranks, (Ids{1, 2, 3, 4}));
  }
  cluster.at(2).on_lost(3, LossCause::kData, cluster.now());
  cluster.run(base::seconds(8));
  EXPECT_EQ(cluster.at(1).view().ranks, (Ids{1, 2, 5, 4}));
  EXPECT_TRUE(says(cluster.dismissal(3), "others cannot reach it")) << cluster.dismissal(3);
}

TEST(Member, ARankThatStopsOfItsOwnAccordStopsAll) {
  Cluster cluster({}, 3, 0);
  cluster.all_begin(4);
  cluster.park(2);
  cluster.settle();
  EXPECT_EQ(cluster.at(3).view().epoch, 2U);
  EXPECT_EQ(cluster.seen<Decided>(3).front().decision.why, "rank 1 stopped: an operation failed");
}

TEST(Member, WhenNobodyHasTheStateAllAreToldSo) {
  Cluster cluster({}, 3, 2);
  cluster.stateless_ = {4};
  cluster.kill(1);  // 4 joins and has no state yet
  cluster.slow_ = {2, 3};
  cluster.kill(2);
  cluster.stateless_ = {4, 5, 3};
  cluster.park(3);
  cluster.settle();
  EXPECT_TRUE(says(cluster.dismissal(4), "all that had the state are gone"));
  EXPECT_TRUE(says(cluster.dismissal(5), "all that had the state are gone"));
}

TEST(Member, StandbysAloneNeverDecide) {
  Cluster cluster({}, 2, 5);
  for (const MemberId rank : Ids{1, 2}) {
    for (MemberId standby = 3; standby <= 7; ++standby) {
      cluster.cut(rank, standby);
    }
  }
  cluster.run(base::seconds(5));
  EXPECT_EQ(cluster.seen<Interrupt>(1).size(), 1U);
  cluster.run(base::seconds(13));
  for (MemberId id = 1; id <= 7; ++id) {
    EXPECT_TRUE(cluster.seen<Decided>(id).empty());
    EXPECT_NE(cluster.dismissal(id), "") << id;
  }
  EXPECT_TRUE(says(cluster.dismissal(7), "all that had the state are gone"))
      << cluster.dismissal(7);
}

TEST(Member, StragglersAreNamedOnceAndReplacedIfAskedFor) {
  MemberConfig config;
  config.replace_stragglers = true;
  Cluster cluster(config, 4, 1);
  for (std::uint64_t step = 0; step < 12; ++step) {
    for (MemberId id = 1; id <= 4; ++id) {
      cluster.at(id).on_step(step, base::milliseconds(id == 3 ? 50 : 10), cluster.now());
    }
    cluster.run(base::milliseconds(100));
  }
  cluster.run(base::seconds(3));
  for (const MemberId id : Ids{1, 2, 4, 5}) {
    ASSERT_EQ(cluster.seen<StragglerFound>(id).size(), 1U) << id;
    EXPECT_EQ(cluster.seen<StragglerFound>(id).front().rank, 2U);
    EXPECT_DOUBLE_EQ(cluster.seen<StragglerFound>(id).front().times_median, 5.0);
  }
  EXPECT_EQ(cluster.at(1).view(), (View{.epoch = 2, .ranks = {1, 2, 5, 4}, .standbys = {3}}));
}

TEST(Member, OneThatWasStoppedItselfBlamesNobody) {
  Member member({}, 1, View{.epoch = 1, .ranks = {1, 2, 3}}, {}, base::Instant());
  member.on_connected(2, base::Instant());
  member.on_connected(3, base::Instant());
  member.on_timeout(base::Instant(base::seconds(60)));
  EXPECT_FALSE(member.poll_event().has_value());
  member.on_timeout(base::Instant(base::milliseconds(61'000)));
  EXPECT_FALSE(member.poll_event().has_value());
}

TEST(Member, NonsenseIsCountedAndChangesNothing) {
  Cluster cluster({}, 3, 0);
  const std::vector<std::uint8_t> nonsense = {99, 1, 2, 3};
  cluster.at(1).on_message(2, nonsense, cluster.now());
  cluster.at(1).on_message(77, encode(Halt{1, make_ballot(9, 1), {}, "x"}), cluster.now());
  EXPECT_EQ(cluster.at(1).refused_messages(), 2U);
  // Another driver's ballot.
  cluster.at(1).on_message(3, encode(Halt{1, make_ballot(9, 1), {}, "x"}), cluster.now());
  cluster.settle();
  EXPECT_TRUE(cluster.seen<Interrupt>(1).empty());
}

}  // namespace
}  // namespace spillway::membership
