// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/lloyd_max.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "base/random.h"

namespace spillway::codec::reference {
namespace {

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

}  // namespace
}  // namespace spillway::codec::reference
