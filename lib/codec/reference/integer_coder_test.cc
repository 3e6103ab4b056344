// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/integer_coder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "codec/entropy/alphabet.h"
#include "codec/sample_data.h"

namespace spillway::codec::reference {
namespace {

using entropy::gaussian_integers;
using entropy::laplace_integers;

double bits_per_value(IntegerCoder& coder, const std::vector<std::int32_t>& values) {
  const std::vector<std::uint8_t> bytes = coder.encode(values);
  std::vector<std::int32_t> decoded(values.size(), 1);
  const base::Status status = coder.decode(bytes, decoded);
  EXPECT_TRUE(status.ok()) << coder.name() << ": " << status.to_string();
  EXPECT_EQ(decoded, values) << coder.name();
  return 8.0 * static_cast<double>(bytes.size()) /
         static_cast<double>(std::max<std::size_t>(values.size(), 1));
}

TEST(IntegerCoderTest, EveryCoderCodesEverythingWhateverItLearned) {
  std::vector<std::int32_t> extremes = gaussian_integers(3000, 4.0, 3);
  extremes[5] = INT32_MAX;
  extremes[6] = INT32_MIN;
  const std::vector<std::vector<std::int32_t>> samples = {
      {},
      {7},
      std::vector<std::int32_t>(1000, 0),
      std::vector<std::int32_t>(1000, -5),
      gaussian_integers(5000, 0.4, 1),
      gaussian_integers(5000, 60.0, 2, 4),
      extremes,
  };
  for (const auto& coder : all_integer_coders()) {
    for (const auto& values : samples) {
      bits_per_value(*coder, values);
    }
    for (const auto& learned : samples) {
      if (learned != extremes) {
        coder->learn(learned);
      }
      for (const auto& values : samples) {
        bits_per_value(*coder, values);
      }
    }
  }
}

TEST(IntegerCoderTest, SizesAreAsTheLiteratureHasThem) {
  constexpr std::size_t kCount = 40'000;
  const std::vector<std::int32_t> last = laplace_integers(kCount, 5.0, 1);
  const std::vector<std::int32_t> now = laplace_integers(kCount, 5.0, 2);
  entropy::Histogram histogram(entropy::Alphabet::bytes());
  histogram.add(std::span<const std::int32_t>(now));
  const double entropy = histogram.entropy_bits() / kCount;
  std::map<std::string, double> over;
  for (const auto& coder : all_integer_coders()) {
    coder->learn(last);
    over[std::string(coder->name())] = bits_per_value(*coder, now) / entropy;
  }
  EXPECT_LT(over["asc"], 1.01);
  EXPECT_LT(over["inline"], 1.01);
  EXPECT_LT(over["one-table"], 1.01);
  EXPECT_LT(over["parametric"], 1.01);
  EXPECT_LT(over["adaptive"], 1.02);
  EXPECT_LT(over["atalanta"], 1.02);
  EXPECT_GT(over["atalanta"], over["asc"]);
  EXPECT_GT(over["dual-length"], 1.05);
  EXPECT_GT(over["packed"], 1.2);
}

TEST(IntegerCoderTest, CutAndMadeUpBytesDoNoHarm) {
  const std::vector<std::int32_t> values = laplace_integers(2000, 5.0, 1);
  base::RandomSequence random(2);
  for (const auto& coder : all_integer_coders()) {
    coder->learn(values);
    const std::vector<std::uint8_t> bytes = coder->encode(values);
    std::vector<std::int32_t> decoded(values.size());
    for (std::size_t size = 0; size < bytes.size(); size += 37) {
      const std::vector<std::uint8_t> cut(bytes.begin(), bytes.begin() + static_cast<long>(size));
      EXPECT_FALSE(coder->decode(cut, decoded).ok() && decoded == values) << coder->name();
    }
    for (int i = 0; i < 200; ++i) {
      std::vector<std::uint8_t> noise(random.next_below(200));
      std::generate(noise.begin(), noise.end(),
                    [&] { return static_cast<std::uint8_t>(random.next_word() % 7); });
      static_cast<void>(coder->decode(noise, decoded).ok());
    }
  }
}

TEST(IntegerCoderTest, AtalantasRangesCoverWhatWasLearnedWithSixteenRows) {
  AtalantaCoder coder;
  const std::vector<std::int32_t> values = gaussian_integers(20'000, 20.0, 5);
  coder.learn(values);
  ASSERT_EQ(coder.ranges().size(), kAtalantaRanges);
  EXPECT_EQ(coder.ranges()[0].low, 0U);
  EXPECT_EQ(coder.ranges().back().high, 1U << kAtalantaBits);
  for (std::size_t i = 1; i < coder.ranges().size(); ++i) {
    EXPECT_GT(coder.ranges()[i].first, coder.ranges()[i - 1].first);
    EXPECT_EQ(coder.ranges()[i].low, coder.ranges()[i - 1].high);
    EXPECT_LE(coder.ranges()[i].first - coder.ranges()[i - 1].first,
              1 << coder.ranges()[i - 1].offset_bits);
  }
}

TEST(IntegerCoderTest, NamesFindTheirCoders) {
  EXPECT_EQ((*make_integer_coder("atalanta"))->name(), "atalanta");
  EXPECT_NE(make_integer_coder("morse").status().message().find("dual-length"), std::string::npos);
}

}  // namespace
}  // namespace spillway::codec::reference
