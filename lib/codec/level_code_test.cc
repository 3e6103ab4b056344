// SPDX-License-Identifier: Apache-2.0
#include "codec/level_code.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "codec/lanes.h"

namespace spillway::codec {
namespace {

using Levels = std::vector<std::uint16_t>;

// A code of 2^bits levels as THC publishes it.
struct Published {
  unsigned bits;
  unsigned range;
  double clip_share;
  Levels levels;
};

const std::vector<Published>& published_codes() {
  static const std::vector<Published> codes = {
      {4, 30, 1.0 / 32, {0, 3, 5, 7, 9, 11, 13, 14, 16, 17, 19, 21, 23, 25, 27, 30}},
      {4, 30, 1.0 / 512, {0, 4, 7, 9, 11, 12, 13, 14, 16, 17, 18, 19, 21, 23, 26, 30}},
      {4, 34, 1.0 / 1024, {0, 5, 8, 10, 12, 14, 15, 16, 18, 19, 20, 22, 24, 26, 29, 34}},
      {4, 34, 1.0 / 32, {0, 3, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 31, 34}},
      {3, 16, 1.0 / 32, {0, 3, 5, 7, 9, 11, 13, 16}},
      {2, 34, 1.0 / 512, {0, 13, 21, 34}}};
  return codes;
}

TEST(LevelCode, LimitsLeaveTheirShareOutside) {
  const std::vector<double> limits = {1.8627, 2.1539, 2.4176, 2.6601, 2.8856, 3.0973, 3.2972};
  double share = 1.0 / 16;
  for (const double limit : limits) {
    EXPECT_NEAR(clip_limit(share), limit, 5e-5) << share;
    EXPECT_NEAR(std::erfc(clip_limit(share) / std::sqrt(2.0)), share, 1e-12);
    share /= 2;
  }
}

TEST(LevelCode, TheSearchFindsThePublishedTables) {
  for (const Published& code : published_codes()) {
    EXPECT_EQ(find_level_code(code.bits, code.range, code.clip_share).levels, code.levels)
        << code.range << " at " << code.clip_share;
  }
}

TEST(LevelCode, ThePublishedTableWithoutAShareIsOneOfThoseFound) {
  const Levels published = {0, 6, 11, 15, 19, 23, 28, 34};
  bool found = false;
  for (int log2 = 4; log2 <= 12; ++log2) {
    found = found || find_level_code(3, 34, std::ldexp(1.0, -log2)).levels == published;
  }
  EXPECT_TRUE(found);
}

double error_of(const LevelCode& code) {
  return expected_level_error(code).total();
}

TEST(LevelCode, ErrorsAreThoseOfTheTables) {
  const auto expect_close = [](double actual, double expected) {
    EXPECT_NEAR(actual / expected, 1.0, 0.05) << expected;
  };
  const LevelError usual = expected_level_error(find_level_code(4, 30, 1.0 / 32));
  expect_close(usual.rounding, 0.0131);
  expect_close(usual.clipping, 0.0073);
  expect_close(error_of(find_level_code(4, 30, 1.0 / 512)), 0.0238);
  expect_close(error_of(find_level_code(4, 34, 1.0 / 1024)), 0.0239);
  expect_close(error_of(find_level_code(3, 16, 1.0 / 32)), 0.0627);
  expect_close(error_of(find_level_code(2, 34, 1.0 / 512)), 0.574);
  expect_close(error_of(uniform_level_code(15, 1.0 / 32)), 0.0206);
  expect_close(error_of(uniform_level_code(3, 1.0 / 512)), 0.714);
  expect_close(error_of(uniform_level_code(3, 1.0 / 1024)), 0.813);
  expect_close(error_of(uniform_level_code(7, 1.0 / 1024)), 0.148);
  expect_close(error_of(uniform_level_code(15, 1.0 / 1024)), 0.0323);
}

// At 8 bits the steps are so fine that clipping at this limit causes most of the error.
TEST(LevelCode, TheErrorOfEightBitsIsMostlyClipping) {
  const LevelError error = expected_level_error(uniform_level_code(255, 1.0 / 1024));
  EXPECT_NEAR(error.rounding, std::pow(2 * 3.2972 / 255, 2) / 6, 1e-6);
  EXPECT_NEAR(error.total() / 0.00024, 1.0, 0.05);
}

TEST(LevelCode, FineCodesHaveTheErrorOfFlatSteps) {
  const double coarser = expected_level_error(uniform_level_code(255, 1e-4)).rounding;
  const double finer = expected_level_error(uniform_level_code(510, 1e-4)).rounding;
  EXPECT_NEAR(coarser / finer, 4.0, 4e-3);
}

// Tries all ways to place `left` more levels after the last one, each with its mirror image.
void try_all(Levels& levels, std::size_t left, LevelCode& code, double& least) {
  if (left == 0) {
    code.levels = levels;
    for (std::size_t i = levels.size(); i-- > 0;) {
      code.levels.push_back(static_cast<std::uint16_t>(code.range - levels[i]));
    }
    least = std::min(least, expected_level_error(code).rounding);
    return;
  }
  for (unsigned next = levels.back() + 1U; 2 * (next + left - 1) < code.range; ++next) {
    levels.push_back(static_cast<std::uint16_t>(next));
    try_all(levels, left - 1, code, least);
    levels.pop_back();
  }
}

TEST(LevelCode, NoOtherSymmetricLevelsAreBetter) {
  for (const auto& [bits, range] : {std::pair{2U, 9U}, std::pair{2U, 34U}, std::pair{3U, 11U},
                                    std::pair{3U, 16U}, std::pair{4U, 31U}}) {
    for (const double share : {1.0 / 16, 1.0 / 32, 1.0 / 1024}) {
      const LevelCode found = find_level_code(bits, range, share);
      LevelCode other = found;
      Levels levels = {0};
      double least = 1e9;
      try_all(levels, (1U << (bits - 1)) - 1, other, least);
      EXPECT_NEAR(expected_level_error(found).rounding, least, 1e-12) << range << " at " << share;
    }
  }
}

TEST(LevelCode, WithoutRoomToChooseAllLevelsAreTaken) {
  for (const unsigned bits : {2U, 3U, 4U, 8U}) {
    const unsigned range = (1U << bits) - 1;
    EXPECT_EQ(find_level_code(bits, range, 1.0 / 32), uniform_level_code(range, 1.0 / 32));
    EXPECT_TRUE(uniform_level_code(range, 1.0 / 32).is_uniform());
  }
  EXPECT_FALSE(find_level_code(4, 30, 1.0 / 32).is_uniform());
}

TEST(LevelCode, TheChosenCodeFillsTheLanesThatItsBitsNeed) {
  for (const unsigned bits : {2U, 3U, 4U, 8U}) {
    for (unsigned ranks = 1; ranks <= 128; ++ranks) {
      const LevelCode code = choose_level_code(bits, ranks);
      ASSERT_TRUE(code.is_uniform());
      ASSERT_GE(code.range, (1U << bits) - 1);
      const unsigned lanes = LaneLayout::make(ranks, (1U << bits) - 1)->lanes;
      ASSERT_EQ(LaneLayout::make(ranks, code.range)->lanes, lanes) << bits << " of " << ranks;
      ASSERT_TRUE(LaneLayout::make(ranks, code.range + 1)->lanes < lanes || lanes == 2)
          << bits << " of " << ranks;
    }
  }
}

TEST(LevelCode, TheChosenCodeIsAsGoodAsThePublishedOnesInTheSameLanes) {
  for (const Published& published : published_codes()) {
    for (const unsigned ranks : {1U, 4U, 7U, 8U, 15U, 32U}) {
      const unsigned width = LaneLayout::make(ranks, published.range)->lanes;
      unsigned bits = published.bits;  // as many bits as need the same lane width as the table
      while (bits < kMaxLevelBits && LaneLayout::make(ranks, (2U << bits) - 1)->lanes >= width) {
        ++bits;
      }
      const auto error = [&](const LevelCode& code) {
        const LevelError parts = expected_level_error(code);
        return parts.rounding / ranks + parts.clipping;
      };
      EXPECT_LE(error(choose_level_code(bits, ranks)),
                error(find_level_code(published.bits, published.range, published.clip_share)))
          << published.range << " of " << ranks;
    }
  }
}

// The table of docs/algorithms.md: the error of the mean of equal ranks, and bits on the wire.
TEST(LevelCode, ErrorsAreThoseThatAreWrittenDown) {
  struct Written {
    LevelCode code;
    unsigned ranks;
    double error;
    double bits;
  };
  const LevelCode early = find_level_code(4, 30, 1.0 / 32);
  const LevelCode late = find_level_code(4, 30, 1.0 / 512);
  for (const Written& row : {Written{early, 4, 0.0105, 7.1}, Written{early, 8, 0.0089, 8.0},
                             Written{early, 32, 0.0077, 10.7}, Written{late, 4, 0.0062, 7.1},
                             Written{late, 8, 0.0032, 8.0}, Written{late, 32, 0.0010, 10.7},
                             Written{choose_level_code(4, 4), 4, 0.0066, 6.4},
                             Written{choose_level_code(4, 8), 8, 0.0037, 7.1},
                             Written{choose_level_code(4, 32), 32, 0.0011, 9.1},
                             Written{choose_level_code(5, 4), 4, 0.0019, 7.1},
                             Written{choose_level_code(5, 8), 8, 0.0011, 8.0},
                             Written{choose_level_code(5, 32), 32, 0.00032, 10.7},
                             Written{choose_level_code(8, 4), 4, 4.7e-5, 10.7},
                             Written{choose_level_code(8, 8), 8, 7.0e-6, 12.8},
                             Written{choose_level_code(8, 32), 32, 1.5e-7, 16.0}}) {
    const LevelError parts = expected_level_error(row.code);
    EXPECT_NEAR(parts.rounding / row.ranks + parts.clipping, row.error, row.error * 0.05)
        << row.ranks << " ranks, " << row.error;
    const LaneLayout lanes = LaneLayout::make(row.ranks, row.code.range).value();
    EXPECT_NEAR(64.0 / lanes.lanes, row.bits, 0.06) << row.ranks << " ranks, " << row.error;
  }
}

TEST(LevelCode, MoreRanksClipLess) {
  EXPECT_GT(choose_level_code(4, 2).clip_share, choose_level_code(4, 128).clip_share);
}

}  // namespace
}  // namespace spillway::codec
