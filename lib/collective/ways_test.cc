// SPDX-License-Identifier: Apache-2.0
#include "collective/ways.h"

#include <gtest/gtest.h>

#include <vector>

namespace spillway::collective {
namespace {

constexpr std::size_t kLargeBytes = 1'000'000;  // from one survey to the next
const Way kFirst{Algorithm::kDirect};
const Way kSecond{Algorithm::kHierarchical};

// ------------------------------------------------------------------ trials

// Trials of both plans.
WayTrials of_plans(bool may_stream = false) {
  return {{kFirst.algorithm, kSecond.algorithm}, may_stream, /*may_code=*/false};
}

// Concludes a stretch of the way that is used now.
void conclude(WayTrials& trials, std::uint64_t first, std::uint64_t second,
              std::uint64_t stream = 0) {
  const bool is_stream = trials.current().carrier == transport::Carrier::kStream;
  trials.conclude(is_stream ? stream : trials.current() == kFirst ? first : second, stream != 0);
}

TEST(WayTrials, KeepTheFasterWay) {
  for (const bool is_first_faster : {true, false}) {
    WayTrials trials = of_plans();
    for (int stretch = 0; stretch < 4; ++stretch) {
      EXPECT_EQ(trials.current(), stretch % 2 == 0 ? kFirst : kSecond);
      conclude(trials, is_first_faster ? 1000 : 1400, is_first_faster ? 1400 : 1000);
    }
    for (int stretch = 0; stretch < 60; ++stretch) {
      EXPECT_EQ(trials.current(), is_first_faster ? kFirst : kSecond);
      conclude(trials, 1100, 1100);
    }
  }
}

// Others' traffic comes and goes: a way that was once much faster has not shown that it is.
TEST(WayTrials, ALuckyStretchDoesNotDecide) {
  WayTrials trials = of_plans();
  for (const std::uint64_t pace : {1000, 600, 1100, 1400}) {
    trials.conclude(pace, false);
  }
  EXPECT_EQ(trials.current(), kFirst);
}

TEST(WayTrials, TheFirstWayWinsIfBothAreAboutAsFast) {
  WayTrials trials = of_plans();
  for (int stretch = 0; stretch < 4; ++stretch) {
    conclude(trials, 1000, 980);
  }
  EXPECT_EQ(trials.current(), kFirst);
}

// So the memory of a stretch is bounded by the bytes between two surveys.
TEST(WayTrials, StretchesEndWhereThereIsNothingToChoose) {
  WayTrials trials({kFirst.algorithm}, /*may_stream=*/false, /*may_code=*/false);
  const std::uint32_t stretch = trials.stretch();
  trials.conclude(0, false);
  EXPECT_NE(trials.stretch(), stretch);
  EXPECT_EQ(trials.current(), kFirst);
}

TEST(WayTrials, AnUnknownPaceProlongsTheStretch) {
  WayTrials trials = of_plans();
  const std::uint32_t stretch = trials.stretch();
  trials.conclude(0, false);
  EXPECT_EQ(trials.current(), kFirst);
  EXPECT_EQ(trials.stretch(), stretch);
}

TEST(WayTrials, LookAgainWhenTheNetworkHasChanged) {
  WayTrials trials = of_plans();
  for (int stretch = 0; stretch < 4; ++stretch) {
    conclude(trials, 1000, 1400);
  }
  ASSERT_EQ(trials.current(), kFirst);
  for (int stretch = 0; stretch < 12; ++stretch) {  // the first way has become slow
    conclude(trials, 2000, 1400);
  }
  EXPECT_EQ(trials.current(), kSecond);
}

TEST(WayTrials, LookAgainFromTimeToTimeAndLessOftenIfNothingChanges) {
  WayTrials trials = of_plans();
  std::vector<int> tried_at;
  for (int stretch = 0; stretch < 1000; ++stretch) {
    if (trials.current() == kSecond) {
      tried_at.push_back(stretch);
    }
    conclude(trials, 1000, 1400);
  }
  ASSERT_GE(tried_at.size(), 6U);  // twice in each trial
  EXPECT_LE(tried_at.size(), 12U);
  EXPECT_GT(tried_at[4] - tried_at[2], tried_at[2] - tried_at[0]);
}

const Way kFirstOnStream{kFirst.algorithm, transport::Carrier::kStream};

TEST(WayTrials, TryTheBetterPlanOnAStream) {
  WayTrials trials = of_plans(/*may_stream=*/true);
  for (int stretch = 0; stretch < 4; ++stretch) {
    EXPECT_EQ(trials.current().carrier, transport::Carrier::kDatagrams);
    conclude(trials, 1000, 1400, 900);
  }
  for (int stretch = 0; stretch < 20; ++stretch) {
    EXPECT_EQ(trials.current(), kFirstOnStream);
    conclude(trials, 1000, 1400, 900);
  }
}

TEST(WayTrials, DatagramsWinIfAStreamIsAboutAsFast) {
  WayTrials trials = of_plans(/*may_stream=*/true);
  for (int stretch = 0; stretch < 6; ++stretch) {
    conclude(trials, 1000, 1400, 980);
  }
  EXPECT_EQ(trials.current(), kFirst);
}

TEST(WayTrials, UseNoStreamThatARankLacks) {
  WayTrials trials = of_plans(/*may_stream=*/true);
  for (int stretch = 0; stretch < 30; ++stretch) {
    EXPECT_EQ(trials.current().carrier, transport::Carrier::kDatagrams);
    conclude(trials, 1000, 1400);
  }
}

TEST(WayTrials, LeaveAStreamThatHasEnded) {
  WayTrials trials = of_plans(/*may_stream=*/true);
  for (int stretch = 0; stretch < 8; ++stretch) {
    conclude(trials, 1000, 1400, 900);
  }
  ASSERT_EQ(trials.current(), kFirstOnStream);
  trials.conclude(0, /*has_streams=*/false);
  EXPECT_EQ(trials.current(), kFirst);
}

// Code in the first way, or on a stream.
WayTrials of_code(bool may_stream = false) {
  return {{kFirst.algorithm}, may_stream, /*may_code=*/true};
}

void conclude_code(WayTrials& trials, std::uint64_t plain, std::uint64_t code,
                   std::uint64_t stream = 0) {
  const Way way = trials.current();
  const bool is_stream = way.carrier == transport::Carrier::kStream;
  trials.conclude(way.form == ByteForm::kCode ? code : is_stream ? stream : plain, stream != 0);
}

TEST(WayTrials, CodeWinsWhereItIsFaster) {
  for (const std::uint64_t code : {800, 990, 1200}) {
    WayTrials trials = of_code();
    for (int stretch = 0; stretch < 4; ++stretch) {
      EXPECT_EQ(trials.current().form, stretch < 2 ? ByteForm::kPlain : ByteForm::kCode);
      conclude_code(trials, 1000, code);
    }
    for (int stretch = 0; stretch < 20; ++stretch) {
      EXPECT_EQ(trials.current().form, code == 800 ? ByteForm::kCode : ByteForm::kPlain);
      conclude_code(trials, 1000, code);
    }
  }
}

TEST(WayTrials, CodeIsTriedInTheBestWayWithoutIt) {
  WayTrials trials = of_code(/*may_stream=*/true);
  for (int stretch = 0; stretch < 4; ++stretch) {
    conclude_code(trials, 1000, 600, 800);
  }
  for (int stretch = 0; stretch < 20; ++stretch) {
    EXPECT_EQ(trials.current(),
              (Way{kFirst.algorithm, transport::Carrier::kStream, ByteForm::kCode}));
    conclude_code(trials, 1000, 600, 800);
  }
  trials.conclude(0, /*has_streams=*/false);
  EXPECT_EQ(trials.current(), kFirst);
}

TEST(WayTrials, CodeIsNotTriedWhereNoCoderKeepsUp) {
  WayTrials trials = of_code();
  for (int stretch = 0; stretch < 50; ++stretch) {
    EXPECT_EQ(trials.current(), kFirst);
    conclude_code(trials, 200, 100);
  }
}

// ------------------------------------------------------------------ surveys

Ways ways_of(std::uint16_t ranks) {
  return {ranks, kLargeBytes, {kFirst.algorithm, kSecond.algorithm}, /*may_stream=*/false};
}

Ways::Choice begin(Ways& ways) {
  return ways.begin(Traffic::kExact, kLargeBytes);
}

void record_all(Ways& ways, std::uint64_t pace = 0) {
  ways.record(0, {.capacity = 300, .paces = {pace, 0}});
  ways.record(1, {.capacity = 1000, .paces = {3 * pace, 0}});
  ways.record(2, {.capacity = 1000});
}

TEST(Ways, WhatASurveyTellsCountsAFewOperationsLater) {
  Ways ways = ways_of(3);
  EXPECT_FALSE(ways.begin(Traffic::kExact, kLargeBytes / 2).is_survey);
  EXPECT_TRUE(ways.begin(Traffic::kExact, kLargeBytes / 2).is_survey);
  record_all(ways, 1000);
  for (unsigned later = 1; later <= Ways::kLag; ++later) {
    EXPECT_FALSE(ways.is_waiting());
    EXPECT_TRUE(ways.shares().are_equal());
    EXPECT_EQ(ways.way(Traffic::kExact), kFirst);
    EXPECT_FALSE(begin(ways).is_survey);  // one survey at a time
  }
  EXPECT_FALSE(ways.shares().are_equal());
  EXPECT_EQ(ways.way(Traffic::kExact), kSecond);
  EXPECT_TRUE(ways.begin(Traffic::kExact, 1).is_survey);
}

TEST(Ways, WaitForNotesOnlyWhereTheyMatter) {
  Ways ways = ways_of(3);
  EXPECT_TRUE(begin(ways).is_survey);
  for (unsigned later = 1; later < Ways::kLag; ++later) {
    EXPECT_FALSE(ways.is_waiting());
    begin(ways);
  }
  EXPECT_TRUE(ways.is_waiting());
  record_all(ways);
  EXPECT_FALSE(ways.is_waiting());
}

TEST(Ways, DoNotWaitForARankThatHasLeft) {
  Ways ways = ways_of(3);
  EXPECT_TRUE(begin(ways).is_survey);
  ways.record(0, {.capacity = 300, .paces = {1000, 0}});
  ways.give_up();
  for (unsigned later = 1; later <= Ways::kLag; ++later) {
    EXPECT_FALSE(ways.is_waiting());
    begin(ways);
  }
  EXPECT_TRUE(ways.shares().are_equal());
  EXPECT_EQ(ways.way(Traffic::kExact), kFirst);
}

constexpr base::Instant at(int milliseconds) {
  return base::Instant() + base::milliseconds(milliseconds);
}

// Time in which two operations are under way counts once.
TEST(Ways, MeasureHowLongOperationsWereUnderWay) {
  Ways ways = ways_of(3);
  const Ways::Choice choice = ways.begin(Traffic::kExact, 1000);
  EXPECT_EQ(ways.own_note(7, false), RankNote{.capacity = 7});
  const auto end = [&](int started, int ended) {
    ways.on_end(Traffic::kExact, choice, 1'000'000, at(started), at(ended));
  };
  end(100, 104);
  end(102, 107);
  EXPECT_EQ(ways.own_note(7, false).paces[0], 7'000'000'000U / 2'000'000U);
  end(110, 112);
  end(120, 121);
  EXPECT_EQ(ways.own_note(7, false).paces[0], 10'000'000'000U / 4'000'000U);
  end(90, 122);  // the others' time lies in its own
  EXPECT_EQ(ways.own_note(7, false).paces[0], 32'000'000'000U / 5'000'000U);
  EXPECT_EQ(ways.own_note(7, false).paces[1], 0U);
}

TEST(Ways, OperationsThatMeetAnotherStretchSayNothing) {
  Ways ways = ways_of(3);
  const Ways::Choice before = begin(ways);
  record_all(ways, 1000);
  Ways::Choice now;
  for (unsigned later = 1; later <= Ways::kLag; ++later) {
    now = ways.begin(Traffic::kExact, 1000);
  }
  ASSERT_EQ(ways.way(Traffic::kExact), kSecond);
  ways.on_end(Traffic::kExact, before, 1'000'000, at(10), at(40));
  EXPECT_EQ(ways.own_note(1, false).paces[0], 0U);
  ways.on_end(Traffic::kExact, now, 1'000'000, at(30), at(60));  // shared the network until 40
  EXPECT_EQ(ways.own_note(1, false).paces[0], 0U);
  ways.on_end(Traffic::kExact, now, 1'000'000, at(50), at(64));
  EXPECT_EQ(ways.own_note(1, false).paces[0], 14'000U);
}

}  // namespace
}  // namespace spillway::collective
