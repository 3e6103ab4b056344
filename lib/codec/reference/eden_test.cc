// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/eden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "codec/rotation.h"
#include "codec/sample_data.h"

namespace spillway::codec::reference {
namespace {

std::vector<float> round_trip(const EdenCodec& codec, std::span<const float> tensor,
                              std::uint64_t seed) {
  std::vector<float> estimate(tensor.size(), -1.0F);
  const auto bytes = codec.encode(tensor, seed);
  const base::Status status = codec.decode(bytes, tensor.size(), seed, estimate);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return estimate;
}

std::vector<float> mean_estimate(const EdenCodec& codec, std::span<const float> tensor,
                                 std::uint64_t seeds) {
  std::vector<double> sums(tensor.size(), 0.0);
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const std::vector<float> estimate = round_trip(codec, tensor, seed);
    std::transform(sums.begin(), sums.end(), estimate.begin(), sums.begin(), std::plus<>());
  }
  std::vector<float> means(tensor.size());
  std::transform(sums.begin(), sums.end(), means.begin(),
                 [seeds](double sum) { return static_cast<float>(sum / seeds); });
  return means;
}

TEST(Eden, ErrorOnGaussianRowsIsThatOfThePaper) {
  const std::vector<double> known = {0.5708, 0.1331, 0.03578, 0.00959};
  const std::vector<float> tensor = gaussian_values(24 * kMaxRowLength, 1);
  for (unsigned bits = 1; bits <= 4; ++bits) {
    const double error = nmse(round_trip(EdenCodec(bits), tensor, 7), tensor);
    EXPECT_NEAR(error / known[bits - 1], 1.0, 0.03) << bits << " bits: " << error;
  }
}

TEST(Eden, ErrorOnHeavyTailsIsThatOfGaussianRows) {
  const std::vector<float> tensor = lognormal_values(24 * kMaxRowLength, 1);
  EXPECT_NEAR(nmse(round_trip(EdenCodec(2), tensor, 7), tensor) / 0.1331, 1.0, 0.05);
  EXPECT_NEAR(nmse(round_trip(EdenCodec(4), tensor, 7), tensor) / 0.00959, 1.0, 0.05);
}

TEST(Eden, EveryBitDividesTheErrorByMoreThanThree) {
  const std::vector<float> tensor = gaussian_values(2 * kMaxRowLength, 2);
  double previous = 2.0;
  for (unsigned bits = 1; bits <= kMaxQuantiserBits; ++bits) {
    const double error = nmse(round_trip(EdenCodec(bits), tensor, 3), tensor);
    EXPECT_LT(error, previous / 3.0) << bits << " bits";
    previous = error;
  }
}

TEST(Eden, TheMeanOverSeedsIsTheTensor) {
  constexpr std::uint64_t kSeeds = 3000;
  const std::vector<float> tensor = gaussian_values(500, 3);
  // With independent, unbiased estimates the error of the mean falls as 1 / kSeeds. With the
  // minimum-error scale it would stay at 0.13 for one bit and at 0.014 for two.
  EXPECT_LT(nmse(mean_estimate(EdenCodec(1), tensor, kSeeds), tensor), 3 * 0.571 / kSeeds);
  EXPECT_LT(nmse(mean_estimate(EdenCodec(2), tensor, kSeeds), tensor), 3 * 0.133 / kSeeds);
}

TEST(Eden, ASingleNonZeroComesBack) {
  std::vector<float> tensor(1000, 0.0F);
  tensor[123] = -42.0F;
  EXPECT_LT(nmse(round_trip(EdenCodec(1), tensor, 5), tensor), 1e-10);
  EXPECT_LT(nmse(round_trip(EdenCodec(5), tensor, 5), tensor), 1e-10);
}

TEST(Eden, TheLastRowIsPaddedToAPowerOfTwo) {
  const EdenCodec codec(3);
  EXPECT_EQ(codec.encoded_bytes(0), 0U);
  EXPECT_EQ(codec.encoded_bytes(1), 4U + 256 * 3 / 8);
  EXPECT_EQ(codec.encoded_bytes(257), 4U + 512 * 3 / 8);
  EXPECT_EQ(codec.encoded_bytes(kMaxRowLength), 4U + 32768 * 3 / 8);
  EXPECT_EQ(codec.encoded_bytes(70'000), 3 * 4U + (2 * 32768 + 8192) * 3 / 8);
  EXPECT_NEAR(codec.bits_per_coordinate(kMaxRowLength), 3.0 + 32.0 / 32768, 1e-9);
  const std::vector<float> tensor = gaussian_values(70'000, 4);
  EXPECT_NEAR(nmse(round_trip(codec, tensor, 5), tensor), 0.0358, 0.003);
}

TEST(Eden, ANonFiniteValueTurnsItsRowIntoNanAndNoOther) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> tensor(2 * kMaxRowLength, 1.0F);
    tensor[kMaxRowLength + 5] = bad;
    const std::vector<float> estimate = round_trip(EdenCodec(4), tensor, 6);
    for (std::size_t i = 0; i < tensor.size(); ++i) {
      ASSERT_EQ(std::isnan(estimate[i]), i >= kMaxRowLength) << i;
    }
  }
}

TEST(Eden, VeryLargeAndVerySmallRowsKeepTheirPrecision) {
  for (const float factor : {1e-35F, 1e-20F, 1e20F, 1e37F}) {
    std::vector<float> tensor = gaussian_values(4096, 8);
    for (float& value : tensor) {
      value *= factor;
    }
    EXPECT_NEAR(nmse(round_trip(EdenCodec(4), tensor, 5), tensor), 0.0096, 0.001) << factor;
  }
}

TEST(Eden, DenormalRowsStayFiniteAndSmall) {
  const std::vector<float> tensor(300, std::numeric_limits<float>::denorm_min());
  for (const float value : round_trip(EdenCodec(2), tensor, 9)) {
    ASSERT_LT(std::fabs(value), 1e-42F);
  }
}

TEST(Eden, TheLargestFloatsDoNotTurnIntoNan) {
  const std::vector<float> tensor(256, std::numeric_limits<float>::max());
  for (const float value : round_trip(EdenCodec(1), tensor, 9)) {
    ASSERT_FALSE(std::isnan(value));
  }
}

}  // namespace
}  // namespace spillway::codec::reference
