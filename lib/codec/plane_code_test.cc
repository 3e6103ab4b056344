// SPDX-License-Identifier: Apache-2.0
#include "codec/plane_code.h"

#include <gtest/gtest.h>

#include <cmath>

namespace spillway::codec {
namespace {

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

}  // namespace
}  // namespace spillway::codec
