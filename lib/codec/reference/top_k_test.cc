// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/top_k.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "codec/sample_data.h"

namespace spillway::codec::reference {
namespace {

std::vector<float> round_trip(std::span<const float> tensor) {
  const TopKCodec codec;
  std::vector<float> estimate(tensor.size(), -1.0F);
  const base::Status status = codec.decode(codec.encode(tensor, 0), tensor.size(), 0, estimate);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return estimate;
}

TEST(TopK, TheLargestPercentArrivesExactlyAndTheRestIsZero) {
  const std::vector<float> tensor = gaussian_values(10'000, 1);
  const std::vector<float> estimate = round_trip(tensor);
  float smallest_kept = std::numeric_limits<float>::infinity();
  float largest_dropped = 0.0F;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    if (estimate[i] != 0.0F) {
      ASSERT_EQ(estimate[i], tensor[i]);
      smallest_kept = std::min(smallest_kept, std::fabs(tensor[i]));
      ++kept;
    } else {
      largest_dropped = std::max(largest_dropped, std::fabs(tensor[i]));
    }
  }
  EXPECT_EQ(kept, 100U);
  EXPECT_GE(smallest_kept, largest_dropped);
}

TEST(TopK, TheCountIsRoundedUp) {
  const TopKCodec codec;
  EXPECT_EQ(codec.encoded_bytes(0), 0U);
  EXPECT_EQ(codec.encoded_bytes(1), 8U);
  EXPECT_EQ(codec.encoded_bytes(100), 8U);
  EXPECT_EQ(codec.encoded_bytes(101), 16U);
  EXPECT_EQ(codec.bits_per_coordinate(10'000), 0.64);
}

TEST(TopK, TiesGoToTheLowerIndex) {
  std::vector<float> tensor(300, 1.0F);
  tensor[1] = -1.0F;
  tensor[200] = 2.0F;
  const std::vector<float> estimate = round_trip(tensor);
  std::vector<float> expected(300, 0.0F);
  expected[0] = 1.0F;
  expected[1] = -1.0F;
  expected[200] = 2.0F;
  EXPECT_EQ(estimate, expected);
}

TEST(TopK, NonFiniteValuesComeFirst) {
  std::vector<float> tensor(300, std::numeric_limits<float>::max());
  tensor[50] = -std::numeric_limits<float>::infinity();
  tensor[299] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> estimate = round_trip(tensor);
  EXPECT_EQ(estimate[50], -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(estimate[299]));
  EXPECT_EQ(estimate[0], std::numeric_limits<float>::max());
  EXPECT_EQ(estimate[1], 0.0F);
}

TEST(TopK, IndicesOutOfRangeOrOutOfOrderAreMalformed) {
  const TopKCodec codec;
  const std::vector<float> tensor(300, 1.0F);
  std::vector<float> out(tensor.size(), 7.0F);
  for (const std::uint32_t index : {300U, 0xFFFFFFFFU, 0U /* sent before it */}) {
    std::vector<std::uint8_t> bytes = codec.encode(tensor, 0);
    base::store_le(bytes.data() + 8, index);
    EXPECT_EQ(codec.decode(bytes, out.size(), 0, out).code(), base::StatusCode::kMalformed);
  }
  EXPECT_EQ(out, std::vector<float>(tensor.size(), 7.0F));  // untouched on error
}

}  // namespace
}  // namespace spillway::codec::reference
