// SPDX-License-Identifier: Apache-2.0
#include "codec/sketch/support.h"

#include <gtest/gtest.h>

#include <cmath>

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

void expect_back(const Support& chosen, const Support& excluded) {
  const auto bytes = encode_support(chosen, excluded);
  EXPECT_LE(bytes.size(), encoded_support_limit(excluded.length() - excluded.count()));
  const auto decoded = decode_support(bytes, excluded);
  ASSERT_TRUE(decoded.ok()) << decoded.status().message();
  EXPECT_EQ(*decoded, chosen);
}

// A set of whole rows, as in an embedding's gradient.
Support random_rows(std::size_t rows, std::size_t width, std::size_t count, std::uint64_t seed) {
  Support support(rows * width);
  random_support(rows, count, seed).for_each([&](std::size_t row) {
    for (std::size_t i = 0; i < width; ++i) {
      support.insert(row * width + i);
    }
  });
  return support;
}

TEST(SupportCode, SetsComeBack) {
  for (const std::size_t length : {1, 7, 64, 65, 1000, 20000}) {
    for (const std::size_t in_thousand : {0, 1, 5, 50, 500, 1000}) {
      const Support some = random_support(length, length * in_thousand / 1000, length);
      expect_back(some, Support(length));
      const Support excluded = random_support(length, length / 3, length + 1);
      expect_back(some.without(excluded), excluded);
    }
  }
  expect_back(random_rows(2000, 24, 50, 1),
              random_rows(2000, 24, 300, 2).without(random_rows(2000, 24, 50, 1)));
}

TEST(SupportCode, NothingAndEverythingExcludedTakeOneByte) {
  EXPECT_EQ(encode_support(Support(5000), Support(5000)).size(), 1U);
  EXPECT_EQ(encode_support(Support(5000), Support::all(5000)).size(), 1U);
  expect_back(Support(0), Support(0));
}

TEST(SupportCode, LonelyIndicesTakeATenthMoreThanTheirEntropy) {
  constexpr std::size_t kLength = 200000;
  for (const double share : {0.001, 0.005, 0.02}) {
    const auto count = static_cast<std::size_t>(share * kLength);
    const auto bytes = encode_support(random_support(kLength, count, 5), Support(kLength));
    const double entropy = -share * std::log2(share) - (1 - share) * std::log2(1 - share);
    EXPECT_LT(8.0 * static_cast<double>(bytes.size()), 1.17 * entropy * kLength) << share;
  }
}

TEST(SupportCode, RowsTakeFarLessThanTheirElements) {
  const Support rows = random_rows(10000, 32, 100, 1);
  EXPECT_LT(8 * encode_support(rows, Support(rows.length())).size(), rows.count());
}

TEST(SupportCode, DenseSetsAreBitmaps) {
  EXPECT_EQ(encode_support(random_support(8000, 4000, 1), Support(8000)).size(), 1001U);
}

TEST(SupportCode, CutAndChangedBytesAreErrorsOrOtherSets) {
  const Support excluded = random_support(3000, 700, 1);
  for (const std::size_t count : {30, 1500}) {
    const Support chosen = random_support(3000, count, 2).without(excluded);
    const auto bytes = encode_support(chosen, excluded);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(decode_support(base::ByteView(bytes).first(size), excluded).ok()) << size;
    }
    base::RandomSequence random(3);
    for (int i = 0; i < 2000; ++i) {
      auto changed = bytes;
      changed[random.next_below(changed.size())] ^=
          static_cast<std::uint8_t>(1 + random.next_below(255));
      if (const auto decoded = decode_support(changed, excluded); decoded.ok()) {
        EXPECT_FALSE(decoded->meets(excluded));
        EXPECT_EQ(decoded->length(), 3000U);
      }
    }
    auto longer = bytes;
    longer.push_back(0);
    EXPECT_FALSE(decode_support(longer, excluded).ok());
  }
}

TEST(SupportCode, RunsThatNoEncoderWritesAreErrors) {
  const Support nothing(100);
  // A form, two parameters, a count, then gaps and lengths minus one.
  EXPECT_FALSE(decode_support(std::vector<std::uint8_t>{3}, nothing).ok());
  EXPECT_FALSE(decode_support(std::vector<std::uint8_t>{0, 0}, nothing).ok());
  EXPECT_FALSE(decode_support(std::vector<std::uint8_t>{2, 32, 0, 1, 0, 0, 0, 3}, nothing).ok());
  EXPECT_FALSE(decode_support(std::vector<std::uint8_t>{2, 0, 0, 0, 0, 0, 0}, nothing).ok());
  EXPECT_TRUE(decode_support(std::vector<std::uint8_t>{2, 0, 0, 1, 0, 0, 0, 3}, nothing).ok());
  EXPECT_FALSE(decode_support(std::vector<std::uint8_t>{2, 0, 0, 2, 0, 0, 0, 15}, nothing).ok());
  EXPECT_FALSE(
      decode_support(std::vector<std::uint8_t>{2, 0, 0, 255, 255, 255, 255, 255, 255}, nothing)
          .ok());
  // All of this tensor would lie beyond its end.
  EXPECT_FALSE(decode_support(
                   std::vector<std::uint8_t>{2, 31, 0, 1, 0, 0, 0, 255, 255, 255, 255, 1}, nothing)
                   .ok());
}

}  // namespace

}  // namespace spillway::codec::sketch
