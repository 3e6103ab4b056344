// SPDX-License-Identifier: Apache-2.0
#include "codec/rotation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "codec/row.h"
#include "codec/sample_data.h"

namespace spillway::codec {
namespace {

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
