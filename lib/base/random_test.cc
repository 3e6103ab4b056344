// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include <gtest/gtest.h>

#include <cmath>

namespace spillway::base {
namespace {

// Published known-answer vectors of Philox 4x32-10 (Random123): these values are wire format.
TEST(RandomBlock, MatchesThePublishedVectors) {
  EXPECT_EQ(random_block(0, {0, 0, 0, 0}),
            (RandomBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(random_block(0xffffffffffffffff, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}),
            (RandomBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(random_block(0x299f31d0a4093822, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (RandomBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomBlock, IsComputableAtCompileTime) {
  static_assert(random_block(0, {0, 0, 0, 0})[0] == 0x6627e8d5);
}

TEST(DeriveKey, SeparatesIdentities) {
  EXPECT_NE(derive_key(1, {0, 0, 0, 0}), derive_key(1, {1, 0, 0, 0}));
  EXPECT_NE(derive_key(1, {0, 0, 0, 0}), derive_key(2, {0, 0, 0, 0}));
}

TEST(RandomSequence, RepeatsForTheSameKeyAndDrawsInsideBounds) {
  RandomSequence a(42);
  RandomSequence b(42);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(a.next_word(), b.next_word());
    EXPECT_LT(a.next_below(7), 7U);
    b.next_below(7);
    const double unit = a.next_unit();
    EXPECT_TRUE(unit >= 0.0 && unit < 1.0);
    b.next_unit();
  }
}

TEST(RandomSequence, GaussianHasUnitMomentsAndNormalKurtosis) {
  RandomSequence random(3);
  constexpr int kDraws = 200000;
  double sum = 0;
  double squares = 0;
  double fourths = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double z = random.next_gaussian();
    sum += z;
    squares += z * z;
    fourths += z * z * z * z;
  }
  EXPECT_NEAR(sum / kDraws, 0.0, 0.01);
  EXPECT_NEAR(squares / kDraws, 1.0, 0.02);
  EXPECT_NEAR(fourths / kDraws, 3.0, 0.15);
}

}  // namespace
}  // namespace spillway::base
