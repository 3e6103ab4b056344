// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/reference_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "base/random.h"
#include "codec/reference/coordinates.h"
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

// The mean of N(0, 1) between two bounds, by the midpoint rule.
double mean_between(double lower, double upper) {
  constexpr int kSteps = 20'000;
  double mass = 0.0;
  double moment = 0.0;
  for (int i = 0; i < kSteps; ++i) {
    const double z = lower + (upper - lower) * (i + 0.5) / kSteps;
    const double weight = std::exp(-0.5 * z * z);
    mass += weight;
    moment += weight * z;
  }
  return moment / mass;
}

TEST(LloydMax, CentroidsMatchEdensTables) {
  const std::vector<std::vector<double>> positive = {
      {0.79788},
      {0.45278, 1.51042},
      {0.24509, 0.75601, 1.34391, 2.15195},
      {0.12840, 0.38805, 0.65676, 0.94234, 1.25623, 1.61805, 2.06902, 2.73259}};
  for (unsigned bits = 1; bits <= 4; ++bits) {
    const Quantiser& quantiser = lloyd_max_quantiser(bits);
    const std::size_t half = positive[bits - 1].size();
    ASSERT_EQ(quantiser.centroids.size(), 2 * half);
    for (std::size_t i = 0; i < half; ++i) {
      EXPECT_NEAR(quantiser.centroids[half + i], positive[bits - 1][i], 1e-4);
      EXPECT_EQ(quantiser.centroids[half - 1 - i], -quantiser.centroids[half + i]);
    }
  }
}

TEST(LloydMax, EveryCentroidIsTheMeanOfItsCell) {
  for (unsigned bits = 1; bits <= kMaxQuantiserBits; ++bits) {
    const Quantiser& quantiser = lloyd_max_quantiser(bits);
    for (std::size_t i = 0; i < quantiser.centroids.size(); ++i) {
      const double lower = i == 0 ? -9.0 : quantiser.boundaries[i - 1];
      const double upper = i == quantiser.boundaries.size() ? 9.0 : quantiser.boundaries[i];
      ASSERT_NEAR(quantiser.centroids[i], mean_between(lower, upper), 2e-6) << bits << ", " << i;
    }
  }
}

TEST(LloydMax, EveryBoundaryIsTheMidpointOfItsCentroids) {
  for (unsigned bits = 1; bits <= kMaxQuantiserBits; ++bits) {
    const Quantiser& quantiser = lloyd_max_quantiser(bits);
    ASSERT_EQ(quantiser.boundaries.size() + 1, quantiser.centroids.size());
    for (std::size_t i = 0; i < quantiser.boundaries.size(); ++i) {
      const double sum = static_cast<double>(quantiser.centroids[i]) + quantiser.centroids[i + 1];
      ASSERT_NEAR(quantiser.boundaries[i], 0.5 * sum, 1e-6);
    }
  }
}

TEST(LloydMax, DistortionsAreTheKnownOnes) {
  const std::vector<double> known = {0.3634,   0.1175, 0.03455, 0.00950,
                                     0.002505, 6.4e-4, 1.64e-4, 4.1e-5};
  for (unsigned bits = 1; bits <= kMaxQuantiserBits; ++bits) {
    EXPECT_NEAR(lloyd_max_quantiser(bits).distortion / known[bits - 1], 1.0, 0.02) << bits;
  }
}

TEST(LloydMax, TheIndexIsThatOfTheNearestCentroid) {
  base::RandomSequence random(1);
  for (unsigned bits = 1; bits <= kMaxQuantiserBits; ++bits) {
    const Quantiser& quantiser = lloyd_max_quantiser(bits);
    for (int i = 0; i < 1000; ++i) {
      const auto z = static_cast<float>(2.0 * random.next_gaussian());
      const float chosen = quantiser.centroids[quantiser.index_of(z)];
      for (const float centroid : quantiser.centroids) {
        ASSERT_LE(std::fabs(z - chosen), std::fabs(z - centroid) + 1e-6F);
      }
    }
  }
}

TEST(LloydMax, AnyFloatHasAnIndexInRange) {
  using Limits = std::numeric_limits<float>;
  for (unsigned bits = 1; bits <= kMaxQuantiserBits; ++bits) {
    const Quantiser& quantiser = lloyd_max_quantiser(bits);
    EXPECT_EQ(quantiser.index_of(Limits::infinity()), (1U << bits) - 1);
    EXPECT_EQ(quantiser.index_of(-Limits::infinity()), 0U);
    EXPECT_LT(quantiser.index_of(Limits::quiet_NaN()), 1U << bits);
    EXPECT_EQ(quantiser.index_of(0.0F), 1U << (bits - 1));
  }
}

// ------------------------------------------------------------------ coordinates

TEST(BitPacking, EveryWidthComesBack) {
  constexpr std::size_t kCount = 101;
  for (unsigned width = 1; width <= 32; ++width) {
    base::RandomSequence random(width);
    std::vector<std::uint32_t> numbers(kCount);
    std::vector<std::uint8_t> bytes(packed_bytes(kCount, width));
    BitWriter writer(bytes);
    for (std::uint32_t& number : numbers) {
      number = random.next_word() >> (32 - width);
      writer.put(number, width);
    }
    writer.flush();
    BitReader reader(bytes);
    for (const std::uint32_t number : numbers) {
      ASSERT_EQ(reader.get(width), number) << "width " << width;
    }
  }
}

TEST(BitPacking, TheLeastSignificantBitComesFirst) {
  std::array<std::uint8_t, 2> bytes{};
  BitWriter writer(bytes);
  writer.put(1, 1);
  writer.put(0b101, 3);
  writer.put(0b11111, 5);
  writer.flush();
  EXPECT_EQ(bytes[0], 0b11111011);
  EXPECT_EQ(bytes[1], 0b1);
}

TEST(BitPacking, FlushBeginsANewByte) {
  std::array<std::uint8_t, 2> bytes{};
  BitWriter writer(bytes);
  writer.put(1, 1);
  writer.flush();
  writer.put(1, 1);
  writer.flush();
  EXPECT_EQ(bytes[0], 1);
  EXPECT_EQ(bytes[1], 1);
}

TEST(BitPacking, NothingIsReadOrWrittenBeyondTheEnd) {
  std::array<std::uint8_t, 3> bytes = {0, 0xEE, 0xEE};
  BitWriter writer(base::MutableByteView(bytes).first(1));
  writer.put(0xFFFFFFFF, 32);
  writer.put(1, 1);
  writer.flush();
  EXPECT_EQ(bytes[0], 0xFF);
  EXPECT_EQ(bytes[1], 0xEE);
  BitReader reader(base::ByteView(bytes).first(1));
  EXPECT_EQ(reader.get(32), 0xFFU);
  EXPECT_EQ(reader.get(32), 0U);
}

TEST(BitPacking, SizesRoundUpToBytes) {
  EXPECT_EQ(packed_bytes(0, 31), 0U);
  EXPECT_EQ(packed_bytes(1, 1), 1U);
  EXPECT_EQ(packed_bytes(8, 1), 1U);
  EXPECT_EQ(packed_bytes(9, 1), 2U);
  EXPECT_EQ(packed_bytes(360, 1), 45U);
  EXPECT_EQ(packed_bytes(360, 31), 1395U);
}

}  // namespace

}  // namespace spillway::codec::reference
