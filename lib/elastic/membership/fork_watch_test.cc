// SPDX-License-Identifier: Apache-2.0
#include "elastic/membership/fork_watch.h"

#include <gtest/gtest.h>

#include <set>

#include "elastic/membership/member_testing.h"

namespace spillway::membership {
namespace {

using Comparison = ForkWatch::Comparison;

constexpr base::Instant kNow{base::seconds(9)};

Decision decision_of(std::uint32_t epoch, std::vector<MemberId> ranks, std::uint64_t step = 7) {
  Decision decision{
      .view = {.epoch = epoch, .ranks = std::move(ranks)}, .step = step, .sources = {0}};
  decision.handles.resize(decision.view.ranks.size());
  return decision;
}

TEST(ForkWatch, FindsAnotherDecisionBeforeAndAfterItsOwn) {
  const Decision here = decision_of(2, {1, 3});
  const Decision there = decision_of(2, {2, 3});
  ForkWatch one;
  ForkWatch other;
  EXPECT_FALSE(one.fingerprint(5));
  other.note(there);
  const Fingerprint said = other.fingerprint(0x1234567890abcdef).value();
  EXPECT_EQ(one.compare(9, said, kNow), Comparison::kLater) << "nothing is decided here yet";
  EXPECT_EQ(one.contradiction(here), said);
  EXPECT_FALSE(one.contradiction(there));
  one.note(here);
  EXPECT_EQ(one.compare(9, said, kNow), Comparison::kContradicts);
  EXPECT_EQ(other.compare(9, said, kNow), Comparison::kAgrees);
}

// The first fingerprints count. Later ones concern later epochs or repeat what the first said.
TEST(ForkWatch, KeepsTheFirstThatAMemberSaysAheadOfTime) {
  const Decision here = decision_of(2, {1, 3});
  ForkWatch other;
  other.note(decision_of(2, {2, 3}));
  const Fingerprint lie = other.fingerprint(5).value();
  ForkWatch same;
  same.note(here);
  const Fingerprint truth = same.fingerprint(6).value();
  for (const bool lie_comes_first : {false, true}) {
    ForkWatch one;
    one.compare(9, lie_comes_first ? lie : truth, kNow);
    one.compare(9, lie_comes_first ? truth : lie, kNow + base::seconds(1));
    one.compare(9, {7, 1, 1}, kNow);
    EXPECT_EQ(one.contradiction(here), lie);
    EXPECT_EQ(one.early_of(9).size(), ForkWatch::kEarly);
    EXPECT_EQ(one.ahead_since(kNow), std::vector<MemberId>{9});
    EXPECT_TRUE(one.ahead_since(kNow - base::seconds(1)).empty());
    one.keep_only([](MemberId id) { return id != 9; });
    EXPECT_FALSE(one.contradiction(here));
  }
}

TEST(ForkWatch, TellsEpochsThatWereNotFollowedHere) {
  ForkWatch one;
  one.note(decision_of(2, {1, 3}));
  one.note(decision_of(5, {1, 3}));
  EXPECT_EQ(one.compare(9, {3, 1, 1}, kNow), Comparison::kSkipped);
  EXPECT_EQ(one.compare(9, {6, 1, 1}, kNow), Comparison::kLater);
}

TEST(ForkWatch, RemembersSomeEpochs) {
  ForkWatch one;
  ForkWatch other;
  other.note(decision_of(2, {2, 3}));
  const Fingerprint said = other.fingerprint(77).value();
  for (std::uint32_t epoch = 2; epoch < 2 + ForkWatch::kRemembered; ++epoch) {
    one.note(decision_of(epoch, {1, 3}));
    EXPECT_EQ(one.compare(9, said, kNow), Comparison::kContradicts);
  }
  one.note(decision_of(9, {1, 3}));
  EXPECT_EQ(one.compare(9, said, kNow), Comparison::kSkipped) << "it is forgotten";
}

// Every byte counts, and so does the length.
TEST(ForkWatch, FingerprintsDifferWhereDecisionsDo) {
  std::set<std::uint64_t> values;
  std::vector<Decision> decisions = {decision_of(2, {1, 2}),    decision_of(2, {2, 1}),
                                     decision_of(2, {1, 2}, 8), decision_of(2, {1}),
                                     decision_of(2, {1, 2, 3}), decision_of(2, {1, 2}),
                                     decision_of(2, {1, 2}),    decision_of(2, {1, 2})};
  decisions[5].nonce[15] = 1;
  decisions[6].why = "why";
  decisions[7].handles[1] = {0};
  for (const Decision& decision : decisions) {
    ForkWatch watch;
    watch.note(decision);
    values.insert(watch.fingerprint(0xfedcba9876543210)->value);
  }
  EXPECT_EQ(values.size(), decisions.size());
}

// ------------------------------------------------------------------ members that lie

// Rank 2 drives a change and makes each of the others accept a different decision.
TEST(LyingMember, ADriverThatTellsEachSomethingElseEndsTheJob) {
  MemberConfig config;
  config.size.may_shrink = true;
  Cluster cluster(config, 4, 0);
  cluster.let_lie(2, [](MemberId to, const Message& truth) -> std::vector<Message> {
    const auto* accept = std::get_if<Accept>(&truth);
    if (accept == nullptr) {
      return {truth};
    }
    Accept lie = *accept;
    lie.decision = decision_of(accept->epoch + 1, {2, to});
    return {lie, Chosen{accept->epoch, accept->ballot}};
  });
  cluster.kill(1);
  cluster.run(base::seconds(5));
  for (const MemberId honest : {3, 4}) {
    EXPECT_EQ(
        cluster.dismissal(honest),
        "members follow different decisions about epoch 2: one of them is broken or lies. The "
        "job has ended so that it is not split");
  }
}

// Two members are told of two epochs that neither is in, so neither can ever compare one of them.
TEST(LyingMember, OneThatLeavesEpochsOutEndsTheJob) {
  Cluster cluster({}, 4, 0);
  cluster.say(4, 1, DecisionNotice{decision_of(100, {1, 4})});
  cluster.say(4, 2, DecisionNotice{decision_of(200, {2, 4})});
  for (const MemberId honest : {1, 2}) {
    EXPECT_NE(cluster.dismissal(honest).find("rank 3 names a decision about epoch"),
              std::string::npos)
        << cluster.dismissal(honest);
  }
}

// Only a standby hears of it, and nothing that the others do needs the standby.
TEST(LyingMember, OneThatTakesAStandbyAwayIsFound) {
  Cluster cluster({}, 4, 1);
  cluster.say(4, 5, DecisionNotice{decision_of(2, {5, 4})});
  EXPECT_EQ(cluster.at(5).view().epoch, 2U);
  cluster.run(base::seconds(20));
  for (const MemberId honest : {1, 2, 3}) {
    EXPECT_NE(cluster.dismissal(honest), "");
  }
}

// A newcomer has no voice: nothing it claims to follow or to know can end a job.
TEST(LyingMember, ANewcomersClaimCountsForNothing) {
  Cluster cluster({}, 3, 1);
  cluster.kill(2);
  ASSERT_EQ(cluster.at(1).view().epoch, 2U);
  cluster.add(9);
  cluster.say(9, 1, Fingerprint{2, 1, 1});
  cluster.say(9, 1, DecisionNotice{decision_of(3, {9, 1})});
  cluster.say(9, 1, DismissNotice{7, "go"});
  cluster.say(9, 1, Done{2});
  cluster.run(base::seconds(1));
  EXPECT_EQ(cluster.dismissal(1), "");
  EXPECT_EQ(cluster.at(1).view().epoch, 2U);
  EXPECT_TRUE(cluster.seen<Answered>(1).empty());
}

// An accepted decision counts as chosen only if its driver says so.
TEST(LyingMember, NobodyElseSaysWhatADriverChose) {
  Cluster cluster({}, 3, 1);
  const Ballot ballot = make_ballot(1, 0);
  cluster.say(1, 3, Halt{1, ballot, std::nullopt, "a change"});
  cluster.say(1, 3, Accept{1, ballot, decision_of(2, {1, 2, 3})});
  cluster.say(2, 3, Chosen{1, ballot});
  EXPECT_EQ(cluster.at(3).view().epoch, 1U);
  cluster.say(1, 3, Chosen{1, ballot});
  EXPECT_EQ(cluster.at(3).view().epoch, 2U);
}

// Ranks know themselves whether they are done.
TEST(LyingMember, NobodyEndsAJobWellInTheMiddleOfIt) {
  Cluster cluster({}, 4, 0);
  cluster.all_begin(1);
  cluster.say(4, 1, Done{1});
  EXPECT_EQ(cluster.dismissal(1), "");
  cluster.say(4, 2, DismissNotice{2, std::string(kJobDone)});
  Decision end = decision_of(2, {1, 2, 3, 4});
  end = {.outcome = Outcome::kEnds, .view = end.view, .why = std::string(kJobDone)};
  cluster.say(4, 3, DecisionNotice{end});
  for (const MemberId honest : {2, 3}) {
    EXPECT_NE(cluster.dismissal(honest).find("broken or lies"), std::string::npos);
  }
  ASSERT_EQ(cluster.seen<Decided>(3).size(), 1U);
  EXPECT_FALSE(is_wanted_end(cluster.seen<Decided>(3).front().decision.why));
}

// A standby has no part of the job to finish, so it relies on the ranks: on each that it reaches.
TEST(LyingMember, EndsTheJobOfNoStandby) {
  Cluster cluster({}, 3, 2);
  cluster.say(5, 4, Done{1});  // from a standby
  EXPECT_EQ(cluster.dismissal(4), "");
  cluster.say(3, 4, Done{1});  // from a rank, while others still train
  EXPECT_EQ(cluster.dismissal(4), "");
  cluster.kill(1);
  EXPECT_EQ(cluster.dismissal(4), "");
  EXPECT_EQ(cluster.at(2).view().epoch, 2U);
}

// Sends arbitrary lies and tries to split the job in two: odd ids, even ids, and itself in both.
class Liar {
 public:
  Liar(MemberId self, std::uint64_t seed) : self_(self), draw_(seed) {}

  std::vector<Message> lie_about(MemberId to, const Message& truth) {
    if (draw_.next_below(8) == 0) {
      return {};
    }
    if (draw_.next_below(400) == 0) {
      const auto* alive = std::get_if<Alive>(&truth);
      return {alive != nullptr && draw_.next_below(2) == 0
                  ? Message(Done{alive->epoch})
                  : Message(DismissNotice{1 + static_cast<std::uint32_t>(draw_.next_below(4)),
                                          std::string(kJobDone)})};
    }
    Message said = truth;
    if (auto* accept = std::get_if<Accept>(&said); accept != nullptr && draw_.next_below(2) == 0) {
      accept->decision = twisted(to, accept->decision);
      return {said, Chosen{accept->epoch, accept->ballot}};
    }
    if (auto* verdict = std::get_if<DecisionNotice>(&said);
        verdict != nullptr && draw_.next_below(2) == 0) {
      verdict->decision = twisted(to, verdict->decision);
    } else if (auto* parked = std::get_if<Parked>(&said);
               parked != nullptr && parked->accepted && draw_.next_below(2) == 0) {
      parked->accepted = twisted(to, *parked->accepted);
      parked->accepted_ballot += draw_.next_below(3) << kBallotIndexBits;
    } else if (auto* following = std::get_if<Fingerprint>(&said);
               following != nullptr && draw_.next_below(20) == 0) {
      following->value += 1;
    }
    return {said};
  }

  // Sends a made-up decision to all or to some.
  void make_one_up(Cluster& cluster, const std::vector<MemberId>& honest) {
    const View view = cluster.at(honest.front()).view();
    Decision made_up = decision_of(view.epoch + 1, view.ranks, draw_.next_below(20));
    made_up.view.standbys = view.standbys;
    const bool tells_all = draw_.next_below(2) == 0;
    const bool skips = draw_.next_below(2) == 0;
    for (const MemberId id : honest) {
      if (tells_all || draw_.next_below(2) == 0) {
        made_up.view.epoch =
            view.epoch + 1 + static_cast<std::uint32_t>(skips ? draw_.next_below(3) : 0);
        cluster.say(self_, id,
                    DecisionNotice{tells_all ? halved(id, made_up) : twisted(id, made_up)});
      }
    }
  }

 private:
  Decision halved(MemberId to, Decision decision) const {
    const auto is_other = [&](MemberId id) { return id != self_ && id % 2 != to % 2; };
    std::erase_if(decision.view.ranks, is_other);
    std::erase_if(decision.view.standbys, is_other);
    if (decision.view.ranks.empty()) {
      decision.view.ranks.swap(decision.view.standbys);
    }
    decision.handles.resize(decision.outcome == Outcome::kEnds ? 0 : decision.view.ranks.size());
    decision.sources.resize(decision.outcome == Outcome::kEnds ? 0 : 1);
    return decision;
  }

  Decision twisted(MemberId to, Decision decision) {
    switch (draw_.next_below(6)) {
      case 0:
        std::ranges::reverse(decision.view.ranks);
        break;
      case 1:
        decision.step += draw_.next_below(3);
        break;
      case 2:
        decision.nonce[0] = static_cast<std::uint8_t>(decision.nonce[0] + 1);
        break;
      case 3:
        decision = {.outcome = Outcome::kEnds, .view = decision.view, .why = "a lie"};
        break;
      case 4:
        decision.view.standbys.push_back(1000 + draw_.next_below(3));
        break;
      default:
        return halved(to, decision);
    }
    return decision;
  }

  MemberId self_;
  base::RandomSequence draw_;
};

// Whatever one member says, the honest ones end up with one view or have ended with a reason.
TEST(LyingMember, SplitsNoJobWhateverItSays) {
  unsigned ended = 0;
  unsigned went_on = 0;
  unsigned taken_in = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    base::RandomSequence draw(seed);
    MemberConfig config;
    config.size.may_shrink = true;
    config.park_limit = base::seconds(10);
    config.seed = seed;
    const auto ranks = static_cast<std::uint32_t>(5 + draw.next_below(4));
    const auto standbys = static_cast<std::uint32_t>(draw.next_below(3));
    Cluster cluster(config, ranks, standbys);
    const MemberId self = 1 + draw.next_below(ranks + standbys);
    Liar liar(self, seed);
    cluster.let_lie(self, [&](MemberId to, const Message& m) { return liar.lie_about(to, m); });
    std::vector<MemberId> honest;
    for (MemberId id = 1; id <= ranks + standbys; ++id) {
      if (id != self) {
        honest.push_back(id);
      }
    }
    for (std::uint64_t step = 1; step <= 3; ++step) {
      cluster.all_begin(step);
      if (draw.next_below(4) == 0) {
        liar.make_one_up(cluster, honest);
      }
      cluster.run(base::seconds(1));
    }
    const std::uint64_t newcomers = draw.next_below(3);
    for (MemberId id = 100; id < 100 + newcomers; ++id) {
      cluster.add(id);
    }
    cluster.run(base::seconds(1));
    const MemberId victim = honest[draw.next_below(honest.size())];
    cluster.kill(victim);
    std::erase(honest, victim);
    cluster.run(base::seconds(60));

    std::set<std::pair<std::uint32_t, std::vector<MemberId>>> views;
    for (const MemberId id : honest) {
      if (cluster.seen<Dismissed>(id).empty()) {
        views.insert({cluster.at(id).view().epoch, cluster.at(id).view().ranks});
        ++went_on;
      } else {
        EXPECT_NE(cluster.dismissal(id), "");
        ++ended;
      }
    }
    // Admitted newcomers follow what the others do.
    for (MemberId id = 100; id < 100 + newcomers; ++id) {
      const View& view = cluster.at(id).view();
      const bool is_known = std::ranges::any_of(honest, [&](MemberId member) {
        return cluster.dismissal(member).empty() && cluster.at(member).view().has(id);
      });
      if (is_known && cluster.dismissal(id).empty() && view.has(id)) {
        views.insert({view.epoch, view.ranks});
        ++taken_in;
      }
    }
    EXPECT_LE(views.size(), 1U) << "seed " << seed;
  }
  EXPECT_GT(ended, 30U);
  EXPECT_GT(went_on, 30U);
  EXPECT_GT(taken_in, 5U);
}

}  // namespace
}  // namespace spillway::membership
