// SPDX-License-Identifier: Apache-2.0
//
// Rows through encoder and decoder: error, bias, trims, and unusual rows.
#include "codec/row_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "codec/plane_code.h"
#include "codec/rotation.h"
#include "codec/sample_data.h"

namespace spillway::codec {
namespace {

struct SentRow {
  RowHeader header;
  std::vector<std::uint8_t> planes;
};

SentRow encode(std::span<const float> values, unsigned log2, RotationId id, unsigned planes) {
  static RowEncoder encoder;
  const std::size_t length = std::size_t{1} << log2;
  SentRow coded{encoder.encode(values, log2, id, planes), {}};
  coded.planes.resize(length / 8 * planes);
  encoder.write_planes(0, length, planes, coded.planes.data());
  return coded;
}

// Decodes a row from the first `bytes` bytes of its planes.
std::vector<float> decode(const SentRow& coded, unsigned log2, RotationId id, unsigned planes,
                          std::size_t bytes, Estimate estimate = Estimate::kUnbiased) {
  const std::size_t length = std::size_t{1} << log2;
  std::vector<float> row(length);
  const PlaneSpan span{std::span(coded.planes).first(bytes), length, planes};
  const std::size_t arrived = decode_planes(best_kernels(), span, estimate, row.data());
  finish_row(best_kernels(), coded.header, id, log2, arrived, estimate, row.data());
  return row;
}

std::vector<float> through(std::span<const float> values, unsigned log2, RotationId id,
                           unsigned planes, unsigned kept) {
  const SentRow coded = encode(values, log2, id, planes);
  std::vector<float> row = decode(coded, log2, id, planes, (std::size_t{1} << log2) / 8 * kept);
  row.resize(values.size());
  return row;
}

using Generator = std::function<std::vector<float>(std::uint64_t)>;

struct Distribution {
  const char* name;
  Generator generate;
};

std::vector<Distribution> distributions(std::size_t count) {
  return {{"gaussian", [=](auto seed) { return gaussian_values(count, seed); }},
          {"lognormal", [=](auto seed) { return lognormal_values(count, seed); }},
          {"sparse", [=](auto seed) { return sparse_values(count, 100, seed); }}};
}

TEST(RowCodec, ErrorAtFewPlanesIsNearEdenOnEveryDistribution) {
  constexpr unsigned kLog2 = 13;
  const double eden[] = {0.5708, 0.1331, 0.03578, 0.00959};
  for (const Distribution& distribution : distributions(1U << kLog2)) {
    for (unsigned planes = 1; planes <= 4; ++planes) {
      double error = 0.0;
      constexpr int kRows = 40;
      for (int seed = 0; seed < kRows; ++seed) {
        const std::vector<float> x = distribution.generate(seed);
        error += nmse(through(x, kLog2, {std::uint64_t(seed), 0}, 16, planes), x) / kRows;
      }
      EXPECT_LE(error, 1.06 * eden[planes - 1]) << distribution.name << " at " << planes;
      EXPECT_GE(error, 0.97 * eden[planes - 1]) << distribution.name << " at " << planes;
    }
  }
}

TEST(RowCodec, MeasuredErrorIsThePredictedOneAtEveryPrecision) {
  constexpr unsigned kLog2 = 13;
  for (const unsigned planes : {5U, 6U, 7U, 8U, 9U, 10U, 12U, 14U, 16U}) {
    double error = 0.0;
    for (int seed = 0; seed < 10; ++seed) {
      const std::vector<float> x = gaussian_values(1U << kLog2, seed);
      error += nmse(through(x, kLog2, {std::uint64_t(seed), 0}, 16, planes), x) / 10;
    }
    EXPECT_NEAR(error / expected_nmse(planes, Estimate::kUnbiased), 1.0, 0.08) << planes;
  }
}

TEST(RowCodec, FullPrecisionIsExactToFloatRounding) {
  for (unsigned log2 = kMinRowLog2; log2 <= kMaxRowLog2; ++log2) {
    for (const Distribution& distribution : distributions(std::size_t{1} << log2)) {
      const std::vector<float> x = distribution.generate(log2);
      const std::vector<float> y = through(x, log2, {3, 1}, 32, 32);
      // One float rounding error is 2^-24 of a value; log2(n) butterflies add them in quadrature.
      EXPECT_LT(std::sqrt(nmse(y, x)), 4e-7) << distribution.name << " 2^" << log2;
    }
  }
}

TEST(RowCodec, MinimumErrorEstimateHasLessErrorAndShrinks) {
  const std::vector<float> x = gaussian_values(8192, 1);
  const SentRow coded = encode(x, 13, {1, 1}, 16);
  const std::vector<float> y = decode(coded, 13, {1, 1}, 16, 1024, Estimate::kMinimumError);
  EXPECT_NEAR(nmse(y, x), 1 - 2 / M_PI, 0.02);
  EXPECT_LT(energy(y), 0.7 * energy(x));
}

// The norm of the mean error over many rotations, without the noise of the mean. The errors of two
// halves of the seeds are independent, so their inner product estimates the squared bias.
double relative_bias(std::span<const float> x, unsigned log2, unsigned kept) {
  constexpr int kSeeds = 1000;
  std::vector<double> halves[2];
  halves[0].resize(x.size());
  halves[1].resize(x.size());
  for (int seed = 0; seed < kSeeds; ++seed) {
    const std::vector<float> y = through(x, log2, {1000003ULL * seed, 7}, 8, kept);
    for (std::size_t i = 0; i < x.size(); ++i) {
      halves[seed % 2][i] += (static_cast<double>(y[i]) - x[i]) / (kSeeds / 2);
    }
  }
  double product = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    product += halves[0][i] * halves[1][i];
  }
  return std::sqrt(std::max(0.0, product) / energy(x));
}

class Unbiased : public testing::TestWithParam<unsigned> {};

TEST_P(Unbiased, OnOrdinaryRows) {
  for (const Distribution& distribution : distributions(2048)) {
    EXPECT_LT(relative_bias(distribution.generate(5), 11, GetParam()), 0.01) << distribution.name;
  }
}

// Rows that are not Gaussian after one rotation: the encoder must notice and rotate again.
TEST_P(Unbiased, OnRowsThatAreNotGaussianAfterOneRotation) {
  const unsigned kept = GetParam();
  EXPECT_LT(relative_bias(std::vector<float>{1.0F}, 8, kept), 0.01) << "one value";
  EXPECT_LT(relative_bias(std::vector<float>{1.0F, 0.5F}, 8, kept), 0.01) << "two values";
  EXPECT_LT(relative_bias(std::vector<float>{1, -2, 3, 0.1F, -7}, 8, kept), 0.01) << "five";
  EXPECT_LT(relative_bias(std::vector<float>(1024, -3.0F), 10, kept), 0.01) << "constant";
  std::vector<float> few(2048);
  few[7] = 3.0F;
  few[100] = 1.0F;
  few[101] = -1.0F;
  EXPECT_LT(relative_bias(few, 11, kept), 0.01) << "three of 2048";
  std::vector<float> equal(2048);
  for (std::size_t i = 0; i < equal.size(); i += 16) {
    equal[i] = i % 3 == 0 ? 1.0F : -1.0F;
  }
  EXPECT_LT(relative_bias(equal, 11, kept), 0.01) << "128 equal values of 2048";
}

INSTANTIATE_TEST_SUITE_P(AtPlanes, Unbiased, testing::Values(1, 2, 3, 4, 6),
                         testing::PrintToStringParamName());

TEST(RowCodec, SpikyAndLatticeRowsTakeMoreRotations) {
  EXPECT_EQ(encode(gaussian_values(8192, 1), 13, {1, 1}, 8).header.rotations, 1U);
  EXPECT_EQ(encode(lognormal_values(8192, 1), 13, {1, 1}, 8).header.rotations, 2U);
  EXPECT_GE(encode(std::vector<float>(8192, 1.0F), 13, {1, 1}, 8).header.rotations, 2U);
  EXPECT_EQ(encode(std::vector<float>{1.0F}, 8, {1, 1}, 8).header.rotations, 3U);
}

TEST(RowCodec, ErrorNeverRisesWithTheLengthOfThePrefix) {
  constexpr unsigned kLog2 = 8;
  constexpr unsigned kPlanes = 12;
  constexpr std::size_t kBytes = 256 / 8 * kPlanes;
  constexpr int kRows = 300;
  std::vector<double> error(kBytes + 1);
  for (int seed = 0; seed < kRows; ++seed) {
    const std::vector<float> x = gaussian_values(256, seed);
    const SentRow coded = encode(x, kLog2, {std::uint64_t(seed), 1}, kPlanes);
    for (std::size_t bytes = 0; bytes <= kBytes; ++bytes) {
      // A trim inside the first plane leaves part of the row; later ones leave all of it.
      error[bytes] += nmse(decode(coded, kLog2, {std::uint64_t(seed), 1}, kPlanes, bytes), x);
    }
  }
  EXPECT_DOUBLE_EQ(error[0] / kRows, 1.0);
  for (std::size_t bytes = 33; bytes <= kBytes; ++bytes) {
    EXPECT_LE(error[bytes], error[bytes - 1] * 1.02) << bytes;
  }
}

TEST(RowCodec, CoordinatesWithoutAnyPlaneAreMadeUpForByTheOthers) {
  constexpr unsigned kLog2 = 13;
  const std::vector<float> x = gaussian_values(1U << kLog2, 8);
  const SentRow coded = encode(x, kLog2, {4, 4}, 16);
  double gain = 0.0;
  double error = 0.0;
  const std::vector<float> y = decode(coded, kLog2, {4, 4}, 16, 512);  // half of the first plane
  for (std::size_t i = 0; i < x.size(); ++i) {
    gain += static_cast<double>(x[i]) * y[i] / energy(x);
  }
  error = nmse(y, x);
  EXPECT_NEAR(gain, 1.0, 0.05);
  EXPECT_NEAR(error, 2 * (M_PI / 2) - 1, 0.1);  // half lost, the rest at one plane
}

TEST(RowCodec, AllZeroAndNonFiniteRowsAreTold) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> zeros(300, 0.0F);
  for (const float value : through(zeros, 9, {1, 1}, 16, 16)) {
    EXPECT_EQ(value, 0.0F);
  }
  EXPECT_EQ(encode(zeros, 9, {1, 1}, 16).header.scale, 0.0F);
  for (const float poison : {nan, inf, -inf}) {
    std::vector<float> x = gaussian_values(300, 1);
    x[17] = poison;
    EXPECT_TRUE(std::isnan(encode(x, 9, {1, 1}, 16).header.scale));
    for (const float value : through(x, 9, {1, 1}, 16, 3)) {
      EXPECT_TRUE(std::isnan(value));
    }
  }
}

TEST(RowCodec, MagnitudesFromDenormalToHugeSurvive) {
  for (const float factor : {1e-42F, 1e-38F, 1e-30F, 1e-12F, 1e12F, 1e30F, 3e37F}) {
    std::vector<float> x = gaussian_values(512, 6);
    for (float& value : x) {
      value *= factor;
    }
    const double allowed = factor < 1e-37F ? 1e-4 : 1e-8;  // denormals themselves have few bits
    EXPECT_LT(nmse(through(x, 9, {2, 2}, 16, 16), x), allowed) << factor;
  }
  std::vector<float> largest(256, std::numeric_limits<float>::max() / 2);
  EXPECT_LT(nmse(through(largest, 8, {2, 2}, 16, 16), largest), 1e-8);
}

TEST(RowCodec, ARowWithNothingArrivedIsZero) {
  const SentRow coded = encode(gaussian_values(256, 1), 8, {1, 1}, 8);
  for (const float value : decode(coded, 8, {1, 1}, 8, 0)) {
    EXPECT_EQ(value, 0.0F);
  }
}

TEST(RowCodec, EveryKernelTableGivesTheSamePacketsAndValues) {
  const std::vector<float> x = lognormal_values(5000, 3);
  std::vector<std::uint8_t> expected_planes;
  std::vector<float> expected_values;
  for (const Kernels* kernels : available_kernels()) {
    RowEncoder encoder(*kernels);
    const RowHeader header = encoder.encode(x, 13, {8, 8}, 32);
    std::vector<std::uint8_t> planes(8192 * 4);
    encoder.write_planes(0, 8192, 32, planes.data());
    std::vector<float> values(8192);
    decode_planes(*kernels, {std::span(planes).first(3000), 8192, 32}, Estimate::kUnbiased,
                  values.data());
    finish_row(*kernels, header, {8, 8}, 13, 8192, Estimate::kUnbiased, values.data());
    if (expected_planes.empty()) {
      expected_planes = planes;
      expected_values = values;
    }
    EXPECT_EQ(planes, expected_planes) << kernels->name;
    EXPECT_EQ(values, expected_values) << kernels->name;
  }
}

// ------------------------------------------------------------------ the code of one number

TEST(PlaneCode, IsWithinFourAndAHalfPercentOfEdenAtOneToFourPlanes) {
  const double eden[] = {0.5708, 0.1331, 0.03578, 0.00959};
  for (unsigned planes = 1; planes <= 4; ++planes) {
    const double ratio = expected_nmse(planes, Estimate::kUnbiased) / eden[planes - 1];
    EXPECT_GE(ratio, 0.999) << planes;  // nothing beats the optimum
    EXPECT_LE(ratio, 1.045) << planes;
  }
}

TEST(PlaneCode, OnePlaneIsDriveExactly) {
  EXPECT_NEAR(expected_nmse(1, Estimate::kUnbiased), M_PI / 2 - 1, 1e-12);
  EXPECT_NEAR(expected_nmse(1, Estimate::kMinimumError), 1 - 2 / M_PI, 1e-12);
  EXPECT_NEAR(level_table(1, Estimate::kMinimumError)[0], std::sqrt(2 / M_PI), 1e-6);
  EXPECT_NEAR(level_table(1, Estimate::kUnbiased)[0x80], -std::sqrt(M_PI / 2), 1e-6);
}

TEST(PlaneCode, ErrorFallsWithEveryPlane) {
  for (const Estimate estimate : {Estimate::kUnbiased, Estimate::kMinimumError}) {
    for (unsigned planes = 2; planes <= kMaxPlanes; ++planes) {
      EXPECT_LT(expected_nmse(planes, estimate), expected_nmse(planes - 1, estimate));
    }
  }
}

TEST(PlaneCode, LevelsAreOddAndGrowWithTheCode) {
  for (unsigned planes = 1; planes <= kTablePlanes; ++planes) {
    const LevelTable& levels = level_table(planes, Estimate::kUnbiased);
    const unsigned step = 1U << (kTablePlanes - planes);
    for (unsigned byte = 0; byte < 128; byte += step) {
      EXPECT_EQ(levels[byte], -levels[byte | 0x80]);
      EXPECT_TRUE(byte == 0 || levels[byte] > levels[byte - step]);
    }
  }
}

TEST(PlaneCode, CellMassesAddUpToOne) {
  double sum = 0.0;
  for (unsigned cell = 0; cell < 128; ++cell) {
    sum += magnitude_cell_mass(cell);
  }
  EXPECT_NEAR(sum, 1.0, 1e-12);
}

TEST(PlaneCode, CompanderMeetsItsBreakpointsFromBothSidesAndIsConcave) {
  for (unsigned i = 0; i < kCompanderLines; ++i) {
    const CompanderLine& line = kCompander[i];
    const auto unit = static_cast<float>(internal::kBreakUnits[i]);
    EXPECT_NEAR(unit * line.code_per_unit + line.code_offset, internal::kBreakCodes[i], 4e-3);
    // Decoding is exact because the breakpoints were chosen for it.
    EXPECT_EQ(line.first_code * line.unit_per_code + line.unit_offset, unit);
    EXPECT_TRUE(i == 0 || line.code_per_unit < kCompander[i - 1].code_per_unit);
  }
}

// ------------------------------------------------------------------ rotations

TEST(Rotation, KeepsTheLengthAndIsUndoneByItsInverse) {
  for (unsigned log2 = kMinRowLog2; log2 <= kMaxRowLog2; ++log2) {
    for (unsigned rounds = 1; rounds <= kMaxRotations; ++rounds) {
      const std::vector<float> original = gaussian_values(std::size_t{1} << log2, log2);
      std::vector<float> row = original;
      rotate_row(best_kernels(), {5, 9}, 0, rounds, log2, row.data());
      const double gain = rotation_gain(log2, rounds);
      EXPECT_NEAR(energy(row) / (gain * gain) / energy(original), 1.0, 1e-5);
      for (float& value : row) {
        value = static_cast<float>(value / gain);
      }
      unrotate_row(best_kernels(), {5, 9}, rounds, log2, 1.0F, row.data());
      EXPECT_LT(nmse(row, original), 1e-12);
    }
  }
}

TEST(Rotation, MatchesTheDefinitionOnASmallRow) {
  constexpr unsigned kLog2 = 8;
  constexpr std::size_t kLength = 256;
  SignWords signs;
  draw_signs({77, 3}, 0, kLog2, signs);
  const std::vector<float> x = gaussian_values(kLength, 1);
  std::vector<float> row = x;
  rotate_row(best_kernels(), {77, 3}, 0, 1, kLog2, row.data());
  for (std::size_t j = 0; j < kLength; ++j) {
    double expected = 0.0;
    for (std::size_t i = 0; i < kLength; ++i) {
      const bool walsh = __builtin_parityll(i & j) != 0;
      const bool sign = (signs[i / 32] >> (i % 32) & 1U) != 0;
      expected += walsh != sign ? -x[i] : x[i];
    }
    EXPECT_NEAR(row[j], expected, 1e-4);
  }
}

TEST(Rotation, RoundsCanBeTakenOneByOne) {
  std::vector<float> at_once = gaussian_values(1024, 2);
  std::vector<float> step_by_step = at_once;
  rotate_row(best_kernels(), {1, 2}, 0, 2, 10, at_once.data());
  rotate_row(best_kernels(), {1, 2}, 0, 1, 10, step_by_step.data());
  rotate_row(best_kernels(), {1, 2}, 1, 1, 10, step_by_step.data());
  EXPECT_EQ(at_once, step_by_step);
}

TEST(Rotation, SignsDifferBetweenKeysRowsAndRounds) {
  SignWords a;
  SignWords b;
  draw_signs({1, 1}, 0, 8, a);
  for (const auto& [id, round] : {std::pair{RotationId{2, 1}, 0U}, std::pair{RotationId{1, 2}, 0U},
                                  std::pair{RotationId{1, 1}, 1U}}) {
    draw_signs(id, round, 8, b);
    EXPECT_NE(a[0], b[0]);
  }
}

TEST(RowLayout, PadsOnlyTheLastRowAndOnlyAsFarAsNeeded) {
  EXPECT_EQ(RowLayout(0, 15).row_count(), 0U);
  const RowLayout layout(70'000, 15);
  ASSERT_EQ(layout.row_count(), 3U);
  EXPECT_EQ(layout.row(0), (Row{0, 32768, 15}));
  EXPECT_EQ(layout.row(1), (Row{32768, 32768, 15}));
  EXPECT_EQ(layout.row(2), (Row{65536, 4464, 13}));
  EXPECT_EQ(RowLayout(1, 15).row(0), (Row{0, 1, 8}));
  EXPECT_EQ(RowLayout(256, 15).row(0), (Row{0, 256, 8}));
  EXPECT_EQ(RowLayout(257, 15).row(0), (Row{0, 257, 9}));
  EXPECT_EQ(RowLayout(32768, 15).row(0), (Row{0, 32768, 15}));
}

}  // namespace

}  // namespace spillway::codec
