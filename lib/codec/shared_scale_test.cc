// SPDX-License-Identifier: Apache-2.0
#include "codec/shared_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace spillway::codec {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kMost = std::numeric_limits<float>::max();

TEST(SharedScale, IsTheLargerAndNanIsTheLargest) {
  EXPECT_EQ(larger_scale(1.0F, 2.0F), 2.0F);
  EXPECT_EQ(larger_scale(1e-45F, 0.0F), 1e-45F);
  EXPECT_EQ(larger_scale(kMost, 1e-30F), kMost);
  EXPECT_TRUE(std::isnan(larger_scale(kNan, kMost)));
  EXPECT_TRUE(std::isnan(larger_scale(0.0F, kNan)));
}

TEST(SharedScale, PredictsOnlyFromAScaleThatWasOne) {
  EXPECT_EQ(predict_scale(2.0F, 1.25F), 2.5F);
  EXPECT_EQ(predict_scale(0.0F, 1.25F), 0.0F);
  EXPECT_EQ(predict_scale(kNan, 1.25F), 0.0F);
  EXPECT_EQ(predict_scale(kMost, 1.25F), 0.0F);
}

TEST(SharedScale, SpecialScalesAreZeroAndNan) {
  EXPECT_TRUE(is_special_scale(0.0F));
  EXPECT_TRUE(is_special_scale(kNan));
  EXPECT_FALSE(is_special_scale(1e-45F));
}

}  // namespace
}  // namespace spillway::codec
