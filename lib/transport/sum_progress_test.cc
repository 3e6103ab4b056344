// SPDX-License-Identifier: Apache-2.0
#include "transport/sum_progress.h"

#include <gtest/gtest.h>

namespace spillway::transport {
namespace {

using wire::RankSet;

TEST(SumProgress, WhatOneRankHasNotSentWasNotSentByAll) {
  SumProgress progress(RankSet::below(3));
  EXPECT_EQ(progress.sent_by_all(), 0U);
  progress.note(RankSet::of(0), 7);
  progress.note(RankSet::of(1), 4);
  EXPECT_EQ(progress.sent_by_all(), 0U);
  EXPECT_EQ(progress.sent_by(1), 5U);
  EXPECT_EQ(progress.sent_by(2), 0U);
  progress.note(RankSet::of(2), 5);
  EXPECT_EQ(progress.sent_by_all(), 5U);
}

TEST(SumProgress, ASumTellsOfAllItsRanksAndNothingGoesBack) {
  SumProgress progress(RankSet::below(3));
  progress.note(RankSet::below(3), 9);
  EXPECT_EQ(progress.sent_by_all(), 10U);
  progress.note(RankSet::below(3), 2);
  EXPECT_EQ(progress.sent_by_all(), 10U);
}

TEST(SumProgress, WhoContributesNothingHasNoSay) {
  SumProgress progress(RankSet::below(2));
  progress.note(RankSet::of(5), 100);
  progress.note(RankSet::below(2), 0);
  EXPECT_EQ(progress.sent_by_all(), 1U);
}

}  // namespace
}  // namespace spillway::transport
