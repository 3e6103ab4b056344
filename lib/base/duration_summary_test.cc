// SPDX-License-Identifier: Apache-2.0
#include "base/duration_summary.h"

#include <gtest/gtest.h>

namespace spillway::base {
namespace {

TEST(DurationSummary, PercentilesAreByNearestRank) {
  std::vector<Duration> durations;
  for (std::int64_t i = 200; i >= 1; --i) {
    durations.push_back(microseconds(i));
  }
  const DurationSummary summary = summarise(durations);
  EXPECT_EQ(summary.count, 200U);
  EXPECT_EQ(summary.mean, nanoseconds(100'500));
  EXPECT_EQ(summary.p50, microseconds(100));
  EXPECT_EQ(summary.p99, microseconds(198));
  EXPECT_EQ(summary.max, microseconds(200));
}

TEST(DurationSummary, OfNothingAndOfOne) {
  EXPECT_EQ(summarise({}).count, 0U);
  EXPECT_EQ(summarise({}).max, Duration());
  const DurationSummary one = summarise({microseconds(7)});
  EXPECT_EQ(one.p50, microseconds(7));
  EXPECT_EQ(one.p99, microseconds(7));
}

}  // namespace
}  // namespace spillway::base
