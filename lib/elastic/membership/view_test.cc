// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "elastic/membership/view.h"

namespace spillway::membership {

namespace {

using Ids = std::vector<MemberId>;

Findings of_four(std::vector<Present> present) {
  return {.view = {.epoch = 4, .ranks = {1, 2, 3, 4}, .standbys = {5, 6}},
          .present = std::move(present)};
}
Present rank(MemberId id, std::uint64_t step) {
  return {id, {.has_state = true, .step = step}, {static_cast<std::uint8_t>(id)}};
}
Present standby(MemberId id, bool is_warm = true) {
  return {id, {.has_state = false, .step = 0, .is_warm = is_warm}, {static_cast<std::uint8_t>(id)}};
}

TEST(Choice, WarmStandbysAreCalledFirstThenInOrderThenNewcomers) {
  Findings findings = of_four({rank(1, 9), rank(4, 9), standby(5, false), standby(6), standby(9)});
  EXPECT_EQ(choose(findings).view, (View{5, {1, 6, 9, 4}, {5}}));
  findings.present = {rank(1, 9), rank(3, 9), rank(4, 9), standby(5), standby(6), standby(9)};
  EXPECT_EQ(choose(findings).view, (View{5, {1, 5, 3, 4}, {6, 9}}));
}

TEST(Choice, TheGreatestStepCountsAndOnlyWhoHasItIsASource) {
  Findings findings = of_four({rank(1, 9), rank(2, 10), rank(3, 9), rank(4, 10), standby(5)});
  const Decision decision = choose(findings);
  EXPECT_EQ(decision.step, 10U);
  EXPECT_EQ(decision.sources, (std::vector<std::uint32_t>{1, 3}));
}

TEST(Choice, AStandbysStateIsOfNoUse) {
  Present stale = standby(5);
  stale.position = {.has_state = true, .step = 99};
  const Decision decision =
      choose(of_four({rank(1, 9), rank(2, 9), rank(3, 9), rank(4, 9), stale}));
  EXPECT_EQ(decision.step, 9U);
}

TEST(Choice, AMoveThatWouldTakeTheLastStateAwayIsPutAside) {
  Findings findings = of_four({rank(1, 9), rank(2, 10), rank(3, 9), rank(4, 9), standby(5)});
  findings.requests = {{.kind = RequestKind::kMove, .ranks = {1}}};
  EXPECT_EQ(choose(findings).view.ranks, (Ids{1, 2, 3, 4}));
  findings.present[0] = rank(1, 10);
  EXPECT_EQ(choose(findings).view, (View{5, {1, 5, 3, 4}, {2}}));
}

TEST(Choice, NewPlacesAreBehindTheLastAndForWhoeverIsLeftOver) {
  Findings findings =
      of_four({rank(1, 9), rank(2, 9), rank(3, 9), rank(4, 9), standby(5), standby(6), standby(9)});
  findings.requests = {{.kind = RequestKind::kGrow, .places = 2}};
  const Decision grown = choose(findings);
  EXPECT_EQ(grown.view, (View{5, {1, 2, 3, 4, 5, 6}, {9}}));
  EXPECT_EQ(grown.why, "the job grows by 2");
  EXPECT_EQ(grown.sources, (std::vector<std::uint32_t>{0, 1, 2, 3}));
  findings.present = {rank(1, 9), rank(3, 9), rank(4, 9), standby(5), standby(6)};
  EXPECT_EQ(choose(findings).view, (View{5, {1, 5, 3, 4, 6}, {}}));
}

TEST(Choice, TheDeadComeBeforeMoves) {
  Findings findings = of_four({rank(1, 9), rank(2, 9), rank(4, 9), standby(5)});
  for (const std::uint32_t moved : {0U, 3U}) {
    findings.requests = {{.kind = RequestKind::kMove, .ranks = {moved}}};
    EXPECT_EQ(choose(findings).view, (View{5, {1, 2, 5, 4}, {}}));
  }
}

TEST(Choice, ShrinkingKeepsTheOrder) {
  Findings findings = of_four({rank(1, 9), rank(3, 9), rank(4, 9)});
  findings.size.may_shrink = true;
  findings.size.min_ranks = 3;
  EXPECT_EQ(choose(findings).view, (View{5, {1, 3, 4}, {}}));
  findings.size.min_ranks = 4;
  EXPECT_EQ(choose(findings).outcome, Outcome::kEnds);
}

TEST(Choice, ManyReasonsAreCounted) {
  Findings findings = of_four({rank(1, 9)});
  findings.size.may_shrink = true;
  for (MemberId id = 2; id <= 6; ++id) {
    findings.gone.emplace_back(id, "gone");
  }
  EXPECT_TRUE(choose(findings).why.ends_with("; and 1 more"));
}

TEST(Roster, AnyTwoQuorumsShareSomebody) {
  for (std::uint32_t n = 1; n <= 9; ++n) {
    View view{.epoch = 1};
    for (MemberId id = 1; id <= n; ++id) {
      (id <= (n + 1) / 2 ? view.ranks : view.standbys).push_back(id);
    }
    const Roster roster(view);
    for (std::uint32_t a = 1; a < 1U << n; ++a) {
      const std::uint32_t b = ((1U << n) - 1) & ~a;
      const auto is_quorum = [&roster](std::uint32_t set) {
        return roster.is_quorum(static_cast<std::size_t>(std::popcount(set)), (set & 1) != 0);
      };
      EXPECT_FALSE(is_quorum(a) && is_quorum(b)) << n << " " << a;
    }
  }
}

TEST(Roster, EverybodyIsWatchedByThreeAndKnowsWhomItWatches) {
  for (std::uint32_t n = 1; n <= 12; ++n) {
    View view{.epoch = 1};
    for (MemberId id = 1; id <= n; ++id) {
      view.ranks.push_back(100 - id);
    }
    const Roster roster(view);
    for (std::uint32_t i = 0; i < n; ++i) {
      const Ids watchers = roster.watchers_of(i);
      EXPECT_EQ(watchers.size(), std::min<std::size_t>(n - 1, 3));
      for (const MemberId watcher : watchers) {
        const Ids watched = roster.watched_by(*roster.index_of(watcher));
        EXPECT_TRUE(std::ranges::find(watched, view.ranks[i]) != watched.end());
      }
    }
  }
}

}  // namespace

namespace {

using base::milliseconds;

TEST(Straggler, TypicalWorkIsTheMedianOfTheLastEight) {
  WorkWindow window;
  for (int i = 0; i < 7; ++i) {
    window.add(milliseconds(10));
    EXPECT_FALSE(window.typical().has_value());
  }
  window.add(milliseconds(500));  // one slow step does not matter
  EXPECT_EQ(window.typical(), milliseconds(10));
  for (int i = 0; i < 8; ++i) {
    window.add(milliseconds(30));
  }
  EXPECT_EQ(window.typical(), milliseconds(30));
}

TEST(Straggler, IsMoreThanFactorTimesTheMedian) {
  const std::map<std::uint32_t, base::Duration> work = {
      {0, milliseconds(10)}, {1, milliseconds(20)}, {2, milliseconds(10)}, {3, milliseconds(25)}};
  EXPECT_EQ(find_stragglers(work, 4, 2.0), (std::vector<Straggler>{{3, 2.5}}));
  EXPECT_TRUE(find_stragglers(work, 8, 2.0).empty());  // half of the ranks is not enough
  EXPECT_TRUE(find_stragglers({{0, milliseconds(1)}, {1, milliseconds(9)}}, 2, 2.0).empty());
}

TEST(Straggler, StepsOfNoWorkHaveNone) {
  EXPECT_TRUE(
      find_stragglers(
          {{0, base::nanoseconds(1)}, {1, base::nanoseconds(1)}, {2, base::microseconds(900)}}, 3,
          2.0)
          .empty());
}

}  // namespace

}  // namespace spillway::membership
