// SPDX-License-Identifier: Apache-2.0
#include "codec/sketch/support.h"

#include <gtest/gtest.h>

#include "codec/sketch/sketch_testing.h"

namespace spillway::codec::sketch {
namespace {

TEST(Support, HoldsWhatIsNotZero) {
  const std::vector<std::int32_t> values{0, -1, 0, INT32_MIN, 7};
  const Support support = Support::of_nonzero(values);
  EXPECT_EQ(support.count(), 3U);
  EXPECT_FALSE(support.contains(0));
  EXPECT_TRUE(support.contains(1));
  EXPECT_TRUE(support.contains(3));
  EXPECT_TRUE(support.contains(4));
}

TEST(Support, OfAllHasNothingBeyondTheEnd) {
  for (const std::size_t length : {0, 1, 63, 64, 65, 128, 1000}) {
    const Support all = Support::all(length);
    EXPECT_EQ(all.count(), length);
    EXPECT_EQ(all, Support::of_nonzero(std::vector<std::int32_t>(length, 1)));
    EXPECT_EQ(all.without(all), Support(length));
  }
}

TEST(Support, SetsAreCombined) {
  const Support a = random_support(300, 100, 1);
  const Support b = random_support(300, 100, 2);
  Support either = a;
  either |= b;
  for (std::size_t index = 0; index < 300; ++index) {
    EXPECT_EQ(either.contains(index), a.contains(index) || b.contains(index));
    EXPECT_EQ(a.without(b).contains(index), a.contains(index) && !b.contains(index));
  }
  EXPECT_TRUE(a.meets(b));
  EXPECT_FALSE(a.without(b).meets(b));
}

TEST(Support, GatheredValuesAreScatteredToTheirPlaces) {
  Support support = random_support(1000, 300, 3);
  for (std::size_t index = 128; index < 256; ++index) {
    support.insert(index);  // whole words
  }
  const auto values = values_on(Support::all(1000), 4);
  std::vector<std::int32_t> dense(support.count());
  gather(support, values, dense);
  std::vector<std::int32_t> back(1000, -5);
  scatter(support, dense, back);
  for (std::size_t index = 0; index < 1000; ++index) {
    EXPECT_EQ(back[index], support.contains(index) ? values[index] : -5);
  }
}

}  // namespace
}  // namespace spillway::codec::sketch
