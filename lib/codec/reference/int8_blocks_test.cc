// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/int8_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "codec/sample_data.h"

namespace spillway::codec::reference {
namespace {

std::vector<float> round_trip(std::span<const float> tensor, std::uint64_t seed) {
  const Int8BlockCodec codec;
  std::vector<float> estimate(tensor.size(), -1.0F);
  const base::Status status =
      codec.decode(codec.encode(tensor, seed), tensor.size(), seed, estimate);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return estimate;
}

float largest_magnitude(std::span<const float> values) {
  float largest = 0.0F;
  for (const float value : values) {
    largest = std::max(largest, std::fabs(value));
  }
  return largest;
}

// Every coordinate is off by less than one step of its own block.
void expect_within_a_step(std::span<const float> tensor) {
  const std::vector<float> estimate = round_trip(tensor, 5);
  for (std::size_t first = 0; first < tensor.size(); first += kInt8Block) {
    const auto block = tensor.subspan(first, std::min(kInt8Block, tensor.size() - first));
    const double step = std::max<double>(largest_magnitude(block) / 127.0 * 1.000001,
                                         std::numeric_limits<float>::denorm_min());
    for (std::size_t i = 0; i < block.size(); ++i) {
      ASSERT_LT(std::fabs(static_cast<double>(estimate[first + i]) - block[i]), step * 1.000001);
    }
  }
}

TEST(Int8Blocks, TheErrorIsBelowOneStepOfTheBlock) {
  expect_within_a_step(gaussian_values(5000, 1));
  expect_within_a_step(lognormal_values(5001, 2));
}

TEST(Int8Blocks, TheExtremesOfFloatKeepTheBound) {
  using Limits = std::numeric_limits<float>;
  expect_within_a_step(std::vector<float>{Limits::max(), -Limits::max(), 1.0F, 0.0F});
  expect_within_a_step(std::vector<float>{Limits::min(), -Limits::min() / 3});
  for (int steps = 1; steps < 1000; ++steps) {
    const float largest = static_cast<float>(steps) * Limits::denorm_min();
    expect_within_a_step(std::vector<float>{largest, -largest / 2, Limits::denorm_min()});
  }
}

TEST(Int8Blocks, TheMeanOverSeedsIsTheTensor) {
  constexpr std::uint64_t kSeeds = 4000;
  const std::vector<float> tensor = gaussian_values(256, 3);
  std::vector<double> sums(tensor.size(), 0.0);
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const std::vector<float> estimate = round_trip(tensor, seed);
    std::transform(sums.begin(), sums.end(), estimate.begin(), sums.begin(), std::plus<>());
  }
  // One estimate deviates by at most half a step; allow five deviations of the mean.
  const double step = largest_magnitude(tensor) / 127.0;
  const double bound = 5.0 * 0.5 * step / std::sqrt(static_cast<double>(kSeeds));
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    ASSERT_NEAR(sums[i] / kSeeds, tensor[i], bound);
  }
}

TEST(Int8Blocks, TheLargestValueOfABlockIsKept) {
  const std::vector<float> estimate = round_trip(std::vector<float>{-3.0F, 1.0F, 0.5F}, 1);
  EXPECT_NEAR(estimate[0], -3.0F, 1e-6F);
}

TEST(Int8Blocks, AFullBlockTakes8Point125BitsPerCoordinate) {
  const Int8BlockCodec codec;
  EXPECT_EQ(codec.bits_per_coordinate(256), 8.125);
  EXPECT_EQ(codec.encoded_bytes(257), 257U + 8U);
}

TEST(Int8Blocks, ANonFiniteValueTurnsItsBlockIntoNanAndNoOther) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> tensor(600, 1.0F);
    tensor[300] = bad;
    const std::vector<float> estimate = round_trip(tensor, 2);
    for (std::size_t i = 0; i < tensor.size(); ++i) {
      ASSERT_EQ(std::isnan(estimate[i]), i / kInt8Block == 1) << i;
    }
  }
}

TEST(Int8Blocks, CodesAndScalesThatAreNeverSentAreMalformed) {
  const Int8BlockCodec codec;
  const std::vector<float> tensor(300, 1.0F);
  const std::vector<std::uint8_t> good = codec.encode(tensor, 1);
  std::vector<float> out(tensor.size(), 7.0F);

  std::vector<std::uint8_t> bad_code = good;
  bad_code.back() = 0x80;
  EXPECT_EQ(codec.decode(bad_code, out.size(), 1, out).code(), base::StatusCode::kMalformed);

  for (const float scale : {-1.0F, std::numeric_limits<float>::infinity()}) {
    std::vector<std::uint8_t> bad_scale = good;
    base::store_le(bad_scale.data(), scale);
    EXPECT_EQ(codec.decode(bad_scale, out.size(), 1, out).code(), base::StatusCode::kMalformed);
  }
  EXPECT_EQ(out, std::vector<float>(tensor.size(), 7.0F));  // untouched on error
}

}  // namespace
}  // namespace spillway::codec::reference
