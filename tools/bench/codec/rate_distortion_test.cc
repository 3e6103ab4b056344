// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/codec/speed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "codec/sample_data.h"

namespace spillway::bench {
namespace {

constexpr std::size_t kRateValues = 20'000;  // the last row is padded

RateDistortion rates_of(std::span<const float> gradient, std::span<const float> previous = {}) {
  Progress progress(rate_steps());
  return measure_rates({gradient, previous}, progress);
}

std::map<std::string, std::vector<RatePoint>> by_family(const RateDistortion& rates) {
  std::map<std::string, std::vector<RatePoint>> families;
  for (const RatePoint& point : rates.points) {
    families[point.family].push_back(point);
  }
  return families;
}

// A step with nearly the same support as `values`: every fiftieth nonzero value was zero.
std::vector<float> step_before(const std::vector<float>& values) {
  std::vector<float> previous = values;
  std::size_t found = 0;
  for (float& value : previous) {
    value = value != 0.0F && ++found % 50 == 0 ? 0.0F : -value;
  }
  return previous;
}

TEST(RateDistortion, MoreBitsBuyLessError) {
  const RateDistortion rates = rates_of(codec::lognormal_values(kRateValues, 1));
  for (const auto& [family, points] : by_family(rates)) {
    for (std::size_t i = 0; i < points.size(); ++i) {
      SCOPED_TRACE(points[i].speed.codec);
      EXPECT_GT(points[i].speed.encode_gigabytes_per_second, 0.0);
      EXPECT_GT(points[i].speed.decode_gigabytes_per_second, 0.0);
      if (i > 0) {
        EXPECT_GT(points[i].speed.wire_bits_per_value, points[i - 1].speed.wire_bits_per_value);
        // Values and their lossless code have no error, whatever their bits.
        EXPECT_TRUE(points[i].nmse < points[i - 1].nmse || points[i - 1].nmse == 0.0);
      }
    }
  }
}

TEST(RateDistortion, ErrorsAreThoseOfTheCodes) {
  auto families = by_family(rates_of(codec::gaussian_values(kRateValues, 2)));
  EXPECT_EQ(families["exact"][0].nmse, 0.0);
  EXPECT_LT(families["blocks"][0].nmse, 1e-13);
  EXPECT_LT(families["fp16"][0].nmse, 1e-6);
  EXPECT_GT(families["top-k"][0].nmse, 0.5);
  EXPECT_NEAR(families["planes"][0].nmse, 0.571, 0.03);
  EXPECT_LT(families["levels"][0].nmse, 0.5);
  EXPECT_LT(families["levels"].back().nmse, 1e-3);
}

TEST(RateDistortion, CodedNumbersTakeLessThanTheirPrecision) {
  auto families = by_family(rates_of(codec::lognormal_values(kRateValues, 3)));
  ASSERT_EQ(families["entropy"].size(), 11U);
  for (unsigned precision = 2; precision <= 12; ++precision) {
    const RatePoint& point = families["entropy"][precision - 2];
    EXPECT_EQ(point.speed.codec, "entropy-" + std::to_string(precision));
    EXPECT_LT(point.speed.wire_bits_per_value, precision);
    EXPECT_EQ(point.table, "own, sent along");
  }
}

TEST(RateDistortion, TheStepBeforeSparesTheTable) {
  const std::vector<float> gradient = codec::gaussian_values(kRateValues, 4);
  std::vector<float> previous = gradient;
  std::reverse(previous.begin(), previous.end());
  const auto with = by_family(rates_of(gradient, previous)).at("entropy");
  const auto without = by_family(rates_of(gradient)).at("entropy");
  for (std::size_t i = 0; i < with.size(); ++i) {
    EXPECT_EQ(with[i].table, "last step's");
    EXPECT_LT(with[i].speed.wire_bits_per_value, without[i].speed.wire_bits_per_value);
    EXPECT_EQ(with[i].nmse, without[i].nmse);
  }
}

TEST(RateDistortion, SketchesNeedZerosAndTheStepBefore) {
  const std::vector<float> sparse = codec::sparse_values(kRateValues, 20, 5);
  const RateDistortion alone = rates_of(sparse);
  EXPECT_EQ(by_family(alone).count("sketch"), 0U);
  EXPECT_NE(alone.left_out.find("step before"), std::string::npos);

  const std::vector<float> full = codec::gaussian_values(kRateValues, 6);
  const RateDistortion dense = rates_of(full, full);
  EXPECT_NE(dense.left_out.find("too few"), std::string::npos);

  const RateDistortion predicted = rates_of(sparse, step_before(sparse));
  EXPECT_EQ(predicted.left_out, "");
  auto families = by_family(predicted);
  for (const RatePoint& point : families.at("sketch")) {
    const std::string coded = "entropy" + point.speed.codec.substr(point.speed.codec.find('-'));
    const auto same =
        std::find_if(families["entropy"].begin(), families["entropy"].end(),
                     [&](const RatePoint& other) { return other.speed.codec == coded; });
    ASSERT_NE(same, families["entropy"].end());
    EXPECT_EQ(point.nmse, same->nmse) << coded;  // every miss was recovered
    EXPECT_LT(point.speed.wire_bits_per_value, same->speed.wire_bits_per_value) << coded;
  }
}

}  // namespace
}  // namespace spillway::bench
