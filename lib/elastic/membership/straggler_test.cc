// SPDX-License-Identifier: Apache-2.0
#include "elastic/membership/straggler.h"

#include <gtest/gtest.h>

namespace spillway::membership {
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
