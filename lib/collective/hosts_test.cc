// SPDX-License-Identifier: Apache-2.0
#include "collective/hosts.h"

#include <gtest/gtest.h>

namespace spillway::collective {
namespace {

using Ranks = std::vector<std::uint16_t>;

TEST(Hosts, EvenOnesHaveMatesAndCounterpartsWhateverTheNumbering) {
  const Hosts adjacent({9, 9, 4, 4, 7, 7});
  EXPECT_TRUE(adjacent.are_even());
  EXPECT_TRUE(adjacent.are_adjacent());
  EXPECT_EQ(adjacent.mates(3), (Ranks{2, 3}));
  EXPECT_EQ(adjacent.counterparts(3), (Ranks{1, 3, 5}));
  EXPECT_EQ(adjacent.host(3), 1);
  EXPECT_EQ(adjacent.place(3), 1);

  const Hosts in_turn({0, 1, 0, 1, 0, 1});
  EXPECT_TRUE(in_turn.are_even());
  EXPECT_FALSE(in_turn.are_adjacent());
  EXPECT_EQ(in_turn.mates(3), (Ranks{1, 3, 5}));
  EXPECT_EQ(in_turn.counterparts(3), (Ranks{2, 3}));
  EXPECT_EQ(in_turn.place(3), 1);
}

TEST(Hosts, ThereAreNoLevelsOnOneHostOnUnevenOnesOrWithARankEach) {
  EXPECT_FALSE(Hosts().are_even());
  EXPECT_FALSE(Hosts({0, 0, 0, 0}).are_even());
  EXPECT_FALSE(Hosts({0, 0, 0, 1, 1, 1, 1, 1}).are_even());
  EXPECT_FALSE(Hosts({0, 1, 2, 3}).are_even());
  EXPECT_FALSE(Hosts({0, 1, 2, 3}).are_adjacent());
}

}  // namespace
}  // namespace spillway::collective
