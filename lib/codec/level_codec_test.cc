// SPDX-License-Identifier: Apache-2.0
//
// Rows of several ranks to levels, added as words, and back.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "base/random.h"
#include "codec/lanes.h"
#include "codec/level_code.h"
#include "codec/sample_data.h"

namespace spillway::codec {
namespace {

using Rows = std::vector<std::vector<float>>;
using LevelNumbers = std::vector<std::uint32_t>;

constexpr RotationId kRotation{0x5EED, 3};

unsigned log2_of(std::size_t length) {
  return static_cast<unsigned>(std::countr_zero(std::bit_ceil(length)));
}

// One rank's row after rotation.
struct CodedRow {
  RotatedRow row;
  std::vector<float> rotated;

  CodedRow(std::span<const float> values, RotationId rotation,
           const Kernels& kernels = best_kernels())
      : rotated(std::bit_ceil(values.size())) {
    row = rotate_for_levels(kernels, values, log2_of(values.size()), rotation, rotated);
  }

  LevelNumbers levels(const LevelCode& code, unsigned rank, float scale, RotationId rotation,
                      std::size_t* clipped = nullptr) const {
    LevelNumbers out(rotated.size());
    const std::size_t count = LevelRounder(code, rank).round(rotated, row, scale, rotation, out);
    if (clipped != nullptr) {
      *clipped = count;
    }
    return out;
  }
};

void add(LevelNumbers& sums, const LevelNumbers& more) {
  sums.resize(more.size());
  for (std::size_t i = 0; i < more.size(); ++i) {
    sums[i] += more[i];
  }
}

std::vector<float> decode(const LevelCode& code, const LevelNumbers& sums, unsigned contributors,
                          float scale, RotationId rotation) {
  std::vector<float> values(sums.size());
  decode_level_sums(code, sums, contributors, values);
  finish_level_row(best_kernels(), code, scale, rotation, values.size(), 1.0, values);
  return values;
}

// The estimated mean of some ranks' rows, at the scale of all.
std::vector<float> mean_of(const LevelCode& code, const Rows& rows, RotationId rotation,
                           const std::function<bool(unsigned)>& takes_part) {
  std::vector<CodedRow> coded;
  float scale = 0.0F;
  for (const auto& row : rows) {
    coded.emplace_back(row, rotation);
    scale = larger_scale(scale, coded.back().row.measure);
  }
  LevelNumbers sums(coded[0].rotated.size());
  unsigned contributors = 0;
  for (unsigned rank = 0; rank < rows.size(); ++rank) {
    if (takes_part(rank)) {
      add(sums, coded[rank].levels(code, rank, scale, rotation));
      ++contributors;
    }
  }
  return decode(code, sums, contributors, scale, rotation);
}

bool everybody(unsigned) {
  return true;
}

std::vector<float> exact_mean(const Rows& rows, const std::function<bool(unsigned)>& takes_part) {
  std::vector<double> sums(rows[0].size());
  double count = 0.0;
  for (unsigned rank = 0; rank < rows.size(); ++rank) {
    for (std::size_t i = 0; takes_part(rank) && i < sums.size(); ++i) {
      sums[i] += rows[rank][i];
    }
    count += takes_part(rank) ? 1.0 : 0.0;
  }
  std::vector<float> mean(sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    mean[i] = static_cast<float>(sums[i] / count);
  }
  return mean;
}

Rows gaussian_rows(unsigned ranks, std::size_t length) {
  Rows rows;
  for (unsigned rank = 0; rank < ranks; ++rank) {
    rows.push_back(gaussian_values(length, rank + 1));
  }
  return rows;
}

TEST(LevelCodec, GaussianRowsHaveTheErrorOfTheTables) {
  const std::vector<std::pair<LevelCode, double>> expected = {
      {find_level_code(4, 30, 1.0 / 32), 0.0203},    {find_level_code(4, 30, 1.0 / 512), 0.0238},
      {find_level_code(4, 34, 1.0 / 1024), 0.0239},  {find_level_code(3, 16, 1.0 / 32), 0.0627},
      {find_level_code(2, 34, 1.0 / 512), 0.574},    {uniform_level_code(3, 1.0 / 1024), 0.813},
      {uniform_level_code(7, 1.0 / 1024), 0.148},    {uniform_level_code(15, 1.0 / 1024), 0.0323},
      {uniform_level_code(255, 1.0 / 1024), 0.00024}};
  const Rows rows = gaussian_rows(1, std::size_t{1} << 15);
  for (const auto& [code, error] : expected) {
    double total = 0.0;
    constexpr int kMessages = 8;
    for (std::uint32_t row = 0; row < kMessages; ++row) {
      total += nmse(mean_of(code, rows, {7, row}, everybody), rows[0]) / kMessages;
    }
    EXPECT_NEAR(total / error, 1.0, 0.05) << error;
  }
}

// Ranks draw independently, so many ranks with the same row reveal the mean of the rounding.
TEST(LevelCodec, RoundingIsUnbiasedForAnyRow) {
  std::vector<float> one_value(4096);
  one_value[77] = 5.0F;
  const std::vector<std::vector<float>> samples = {
      gaussian_values(4096, 1), lognormal_values(4096, 2), sparse_values(4096, 500, 3),
      std::vector<float>(4096, 0.25F), one_value};
  constexpr unsigned kRanks = 400;
  for (const LevelCode& code : {find_level_code(4, 30, 1.0 / 1024), find_level_code(2, 12, 1e-5),
                                uniform_level_code(15, 1e-6), uniform_level_code(3, 1e-6)}) {
    for (const auto& sample : samples) {
      const double one = nmse(mean_of(code, {sample}, kRotation, everybody), sample);
      const double many = nmse(mean_of(code, Rows(kRanks, sample), kRotation, everybody), sample);
      const double clipping = expected_level_error(code).clipping;
      EXPECT_LT(many, 1.25 * one / kRanks + 2 * clipping);
    }
  }
}

// docs/algorithms.md, Bias. A Gaussian coordinate shrinks by the probability that it is clipped.
TEST(LevelCodec, ClippingShrinksRowsByTheShareThatIsClipped) {
  struct Slope {
    unsigned bits;
    unsigned ranks;
    double written;
    double tolerance;
  };
  for (const Slope& slope : {Slope{4, 4, 0.993, 0.01}, Slope{2, 4, 0.940, 0.02},
                             Slope{4, 32, 0.999, 0.005}, Slope{2, 32, 0.98, 0.01}}) {
    const LevelCode code = choose_level_code(slope.bits, slope.ranks);
    const Rows rows(slope.ranks, gaussian_values(4096, 1));
    double product = 0.0;
    double energy = 0.0;
    constexpr std::uint32_t kMessages = 8;
    for (std::uint32_t row = 0; row < kMessages; ++row) {
      const std::vector<float> mean = mean_of(code, rows, {7, row}, everybody);
      for (std::size_t i = 0; i < mean.size(); ++i) {
        product += static_cast<double>(mean[i]) * static_cast<double>(rows[0][i]);
        energy += static_cast<double>(rows[0][i]) * static_cast<double>(rows[0][i]);
      }
    }
    EXPECT_NEAR(product / energy, 1.0 - code.clip_share, 0.005)
        << slope.bits << " bits of " << slope.ranks << " ranks";
    EXPECT_NEAR(product / energy, slope.written, slope.tolerance)
        << slope.bits << " bits of " << slope.ranks << " ranks";
  }
}

TEST(LevelCodec, ErrorsOfAnyNumberOfRanksAverageOut) {
  for (const unsigned ranks : {1U, 2U, 3U, 4U, 7U, 8U, 9U, 16U, 17U, 33U, 64U, 100U, 128U}) {
    for (const unsigned bits : {2U, 3U, 4U, 8U}) {
      const LevelCode code = choose_level_code(bits, ranks);
      const Rows rows(ranks, gaussian_values(kMaxRowLength, ranks));
      const LevelError error = expected_level_error(code);
      const double expected = error.rounding / ranks + error.clipping;
      EXPECT_NEAR(nmse(mean_of(code, rows, kRotation, everybody), rows[0]) / expected, 1.0, 0.2)
          << ranks << " ranks, " << bits << " bits";
    }
  }
}

TEST(LevelCodec, AnySubsetDecodesToItsOwnMean) {
  const Rows rows = gaussian_rows(16, 4096);
  const LevelCode code = uniform_level_code(255, 1e-6);
  for (const unsigned mask : {0x0001U, 0x8000U, 0x00F0U, 0xFFFEU, 0xFFFFU}) {
    const auto takes_part = [mask](unsigned rank) { return (mask >> rank & 1U) != 0; };
    EXPECT_LT(nmse(mean_of(code, rows, kRotation, takes_part), exact_mean(rows, takes_part)), 2e-3)
        << mask;
  }
}

// As ranks and switches do it, with lanes as narrow as possible.
TEST(LevelCodec, SumsOfWordsDecodeLikeSumsOfLevels) {
  constexpr unsigned kRanks = 17;
  const LevelCode code = uniform_level_code(15, 1.0 / 256);
  const LaneLayout layout = *LaneLayout::make(kRanks, code.range);
  EXPECT_EQ(kRanks * code.range, (1U << layout.bits) - 1);
  const std::size_t chunks = layout.chunks_for(4096);
  std::vector<std::uint64_t> words(chunks * kChunkWords);
  LevelNumbers sums;
  for (unsigned rank = 0; rank < kRanks; ++rank) {
    std::vector<float> values(4096, 1.0F);
    LevelNumbers levels = CodedRow(values, kRotation).levels(code, rank, 0.01F, kRotation);
    levels[5] = code.range;  // the maximum at all ranks
    add(sums, levels);
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
      const std::size_t first = chunk * layout.values_per_chunk();
      std::array<std::uint64_t, kChunkWords> packed;
      const std::size_t count = std::min(layout.values_per_chunk(), levels.size() - first);
      pack_chunk(layout, std::span(levels).subspan(first, count), packed);
      for (std::size_t i = 0; i < kChunkWords; ++i) {
        words[chunk * kChunkWords + i] += packed[i];
      }
    }
  }
  LevelNumbers unpacked(sums.size());
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    const std::size_t first = chunk * layout.values_per_chunk();
    const std::size_t count = std::min(layout.values_per_chunk(), sums.size() - first);
    unpack_chunk(layout, ConstChunkWords(words.data() + chunk * kChunkWords, kChunkWords),
                 std::span(unpacked).subspan(first, count));
  }
  EXPECT_EQ(unpacked, sums);
}

TEST(LevelCodec, OneRankWithAHugeNormCostsTheOthersNoBias) {
  Rows rows = gaussian_rows(4, 4096);
  for (float& value : rows[0]) {
    value *= 1e6F;
  }
  const LevelCode code = choose_level_code(4, 4);
  const LevelError error = expected_level_error(code);
  EXPECT_LT(nmse(mean_of(code, rows, kRotation, everybody), exact_mean(rows, everybody)),
            6 * error.rounding + 2 * error.clipping);
  // A small row rounds to either side of the middle equally often.
  const CodedRow small(rows[1], kRotation);
  const LevelNumbers levels =
      small.levels(code, 1, CodedRow(rows[0], kRotation).row.measure, kRotation);
  double sum = 0.0;
  for (const std::uint32_t level : levels) {
    sum += 2.0 * level - code.range;
  }
  EXPECT_NEAR(sum / static_cast<double>(levels.size()), 0.0, 0.1);
}

TEST(LevelCodec, SpikyRowsAreSpreadOverTheLevelsAndNotClipped) {
  std::vector<float> block(std::size_t{1} << 15);
  const std::vector<float> loud = gaussian_values(1024, 5);
  std::copy(loud.begin(), loud.end(), block.begin() + 4096);
  std::vector<float> spike(std::size_t{1} << 15);
  spike[12345] = -3.0F;
  const LevelCode code = find_level_code(4, 30, 1.0 / 32);
  for (const auto& row : {block, spike}) {
    const CodedRow coded(row, kRotation);
    std::size_t clipped = 0;
    const LevelNumbers levels = coded.levels(code, 0, coded.row.measure, kRotation, &clipped);
    EXPECT_LT(clipped, row.size() / 25);
    EXPECT_LT(nmse(decode(code, levels, 1, coded.row.measure, kRotation), row), 0.03);
  }
}

TEST(LevelCodec, AnotherSeedDecodesToSomethingElse) {
  const std::vector<float> row = gaussian_values(4096, 6);
  const LevelCode code = uniform_level_code(255, 1e-5);
  const CodedRow coded(row, kRotation);
  const LevelNumbers levels = coded.levels(code, 0, coded.row.measure, kRotation);
  EXPECT_LT(nmse(decode(code, levels, 1, coded.row.measure, kRotation), row), 1e-3);
  EXPECT_GT(nmse(decode(code, levels, 1, coded.row.measure, {kRotation.key + 1, 3}), row), 1.5);
  EXPECT_GT(nmse(decode(code, levels, 1, coded.row.measure, {kRotation.key, 4}), row), 1.5);
}

TEST(LevelCodec, RanksRowsAndKeysDrawIndependently) {
  const CodedRow coded(gaussian_values(4096, 6), kRotation);
  const LevelCode code = uniform_level_code(15, 1e-3);
  const auto levels_as = [&](unsigned rank, RotationId drawn) {
    return coded.levels(code, rank, coded.row.measure, drawn);
  };
  const LevelNumbers reference = levels_as(0, kRotation);
  EXPECT_EQ(levels_as(0, kRotation), reference);
  const std::vector<LevelNumbers> others = {levels_as(1, kRotation),
                                            levels_as(0, {kRotation.key, 4}),
                                            levels_as(0, {kRotation.key + 1, 3})};
  for (const LevelNumbers& other : others) {
    std::size_t different = 0;
    for (std::size_t i = 0; i < other.size(); ++i) {
      different += other[i] != reference[i] ? 1 : 0;
    }
    EXPECT_NEAR(static_cast<double>(different) / 4096, 1.0 / 3, 0.05);  // E[2 f (1 - f)]
  }
}

TEST(LevelCodec, ShortRowsArePadded) {
  const std::vector<float> row = gaussian_values(300, 7);
  std::vector<float> rotated(512);
  const RotatedRow head = rotate_for_levels(best_kernels(), row, 9, kRotation, rotated);
  EXPECT_NEAR(head.measure, std::sqrt(energy(row) / 512), 1e-5);
  const LevelCode code = uniform_level_code(255, 1e-5);
  LevelNumbers levels(512);
  LevelRounder(code, 0).round(rotated, head, head.measure, kRotation, levels);
  const std::vector<float> values = decode(code, levels, 1, head.measure, kRotation);
  EXPECT_LT(nmse(std::span(values).first(300), row), 2e-3);
}

TEST(LevelCodec, ZeroRowsDecodeToZerosWithoutDividing) {
  const CodedRow coded(std::vector<float>(256), kRotation);
  EXPECT_EQ(coded.row.measure, 0.0F);
  const LevelCode code = choose_level_code(4, 8);
  const LevelNumbers levels = coded.levels(code, 0, 0.0F, kRotation);
  EXPECT_EQ(decode(code, levels, 1, 0.0F, kRotation), std::vector<float>(256));
}

TEST(LevelCodec, ARowThatIsNotFiniteMakesTheSharedRowNan) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> row = gaussian_values(256, 8);
    row[100] = bad;
    const CodedRow coded(row, kRotation);
    const float scale = larger_scale(coded.row.measure, 3.0F);
    EXPECT_TRUE(std::isnan(scale));
    const LevelCode code = choose_level_code(4, 8);
    const LevelNumbers levels = coded.levels(code, 0, scale, kRotation);
    for (const float value : decode(code, levels, 1, scale, kRotation)) {
      EXPECT_TRUE(std::isnan(value));
    }
    // At a predicted scale it still contributes valid levels: no lane overflows.
    for (const std::uint32_t level : coded.levels(code, 0, 1.0F, kRotation)) {
      EXPECT_LE(level, code.range);
    }
  }
}

TEST(LevelCodec, TheWholeFloatRangeWorks) {
  const LevelCode code = uniform_level_code(255, 1e-6);
  for (const float factor : {1e-42F, 1e-37F, 1e-20F, 1e+15F, 1e+30F, 1e+37F}) {
    std::vector<float> row = gaussian_values(512, 9);
    for (float& value : row) {
      value *= factor;
    }
    const CodedRow coded(row, kRotation);
    const LevelNumbers levels = coded.levels(code, 0, coded.row.measure, kRotation);
    const double allowed = factor < 1e-37F ? 1e-2 : 1e-3;  // denormals themselves have few bits
    EXPECT_LT(nmse(decode(code, levels, 1, coded.row.measure, kRotation), row), allowed) << factor;
  }
}

TEST(LevelCodec, AnotherRanksExtremesDoNotHurt) {
  const LevelCode code = choose_level_code(4, 2);
  for (const auto& [own, shared] :
       {std::pair{1e-42F, 1e+38F}, std::pair{1.0F, 1e+38F}, std::pair{1e+30F, 1e-40F}}) {
    const CodedRow coded(std::vector<float>(256, own), kRotation);
    for (const std::uint32_t level : coded.levels(code, 0, shared, kRotation)) {
      EXPECT_LE(level, code.range);
    }
  }
}

TEST(LevelCodec, APredictionThatIsTooSmallIsSeenByWhatIsClipped) {
  const CodedRow coded(gaussian_values(4096, 10), kRotation);
  const LevelCode code = uniform_level_code(15, 1.0 / 32);
  const auto clipped_at = [&](float scale) {
    std::size_t clipped = 0;
    coded.levels(code, 0, scale, kRotation, &clipped);
    return static_cast<double>(clipped) / 4096;
  };
  const float exact = coded.row.measure;
  EXPECT_NEAR(clipped_at(exact), 1.0 / 32, 0.01);
  EXPECT_LT(clipped_at(predict_scale(exact, kScaleHeadroom)), 0.012);
  EXPECT_GT(clipped_at(exact / 2), 0.25);
}

TEST(LevelCodec, MissingChunksAreMadeUpForByTheRest) {
  const std::vector<float> row = gaussian_values(4096, 11);
  const LevelCode code = uniform_level_code(255, 1e-6);
  std::vector<double> mean(row.size());
  constexpr std::uint32_t kMessages = 64;
  for (std::uint32_t message = 0; message < kMessages; ++message) {
    const RotationId rotation{99, message};
    const CodedRow coded(row, rotation);
    const LevelNumbers levels = coded.levels(code, 0, coded.row.measure, rotation);
    std::vector<float> values(row.size());
    decode_level_sums(code, std::span(levels).first(3072), 1, std::span(values).first(3072));
    decode_level_sums(code, std::span(levels).last(1024), 0, std::span(values).last(1024));
    finish_level_row(best_kernels(), code, coded.row.measure, rotation, 3072, 1.0, values);
    EXPECT_NEAR(nmse(values, row), 1.0 / 3, 0.05);  // l / (1 - l) for a lost quarter
    for (std::size_t i = 0; i < row.size(); ++i) {
      mean[i] += values[i] / static_cast<double>(kMessages);
    }
  }
  const std::vector<float> average(mean.begin(), mean.end());
  EXPECT_LT(nmse(average, row), 1.3 / 3 / kMessages);
}

TEST(LevelCodec, ARowOfWhichNothingCameIsZero) {
  std::vector<float> row(256, 1.0F);
  finish_level_row(best_kernels(), choose_level_code(4, 8), 1.0F, kRotation, 0, 1.0, row);
  EXPECT_EQ(row, std::vector<float>(256));
}

TEST(LevelCodec, TheWeightTurnsAMeanIntoASum) {
  const std::vector<float> row = gaussian_values(256, 12);
  const LevelCode code = choose_level_code(8, 4);
  const CodedRow coded(row, kRotation);
  const LevelNumbers levels = coded.levels(code, 0, coded.row.measure, kRotation);
  const std::vector<float> once = decode(code, levels, 1, coded.row.measure, kRotation);
  std::vector<float> fourfold(256);
  decode_level_sums(code, levels, 1, fourfold);
  finish_level_row(best_kernels(), code, coded.row.measure, kRotation, 256, 4.0, fourfold);
  for (std::size_t i = 0; i < row.size(); ++i) {
    EXPECT_FLOAT_EQ(fourfold[i], 4.0F * once[i]);
  }
}

// A rank carries over what its levels could not express to the next step. The mean of many steps is
// right, though every step clips.
TEST(LevelCodec, ErrorFeedbackRepairsWhatIsClipped) {
  const std::vector<float> gradient = gaussian_values(1024, 13);
  const LevelCode code = uniform_level_code(15, 1.0 / 8);
  constexpr std::uint32_t kSteps = 100;
  const auto mean_error = [&](bool feedback) {
    std::vector<float> carried(gradient.size());
    std::vector<double> sum(gradient.size());
    for (std::uint32_t step = 0; step < kSteps; ++step) {
      std::vector<float> values = gradient;
      for (std::size_t i = 0; feedback && i < values.size(); ++i) {
        values[i] += carried[i];
      }
      const RotationId rotation{7, 0};  // the same coordinates are clipped in every step
      const CodedRow coded(values, rotation);
      const LevelNumbers levels = coded.levels(code, step, coded.row.measure, rotation);
      const std::vector<float> own = decode(code, levels, 1, coded.row.measure, rotation);
      for (std::size_t i = 0; i < values.size(); ++i) {
        carried[i] = values[i] - own[i];
        sum[i] += own[i] / static_cast<double>(kSteps);
      }
    }
    return nmse(std::vector<float>(sum.begin(), sum.end()), gradient);
  };
  EXPECT_GT(mean_error(false), 0.02);
  EXPECT_LT(mean_error(true), 0.002);
}

TEST(LevelCodec, EveryKernelTableGivesTheSameLevelsAndValues) {
  const std::vector<float> row = lognormal_values(5000, 3);
  for (const LevelCode& code : {choose_level_code(4, 8), find_level_code(4, 30, 1.0 / 32)}) {
    LevelNumbers expected_levels;
    std::vector<float> expected_values;
    for (const Kernels* kernels : available_kernels()) {
      const CodedRow coded(row, kRotation, *kernels);
      LevelNumbers levels(8192);
      LevelRounder(code, 5, *kernels)
          .round(coded.rotated, coded.row, coded.row.measure, kRotation, levels);
      std::vector<float> values(8192);
      decode_level_sums(code, levels, 1, values);
      finish_level_row(*kernels, code, coded.row.measure, kRotation, 8192, 1.0, values);
      if (expected_levels.empty()) {
        expected_levels = levels;
        expected_values = values;
      }
      EXPECT_EQ(levels, expected_levels) << kernels->name;
      EXPECT_EQ(values, expected_values) << kernels->name;
    }
  }
}

// Inputs and levels without libm: these levels must never change.
TEST(LevelCodec, LevelsAreGolden) {
  std::vector<float> row(256);
  for (std::size_t i = 0; i < row.size(); ++i) {
    row[i] = static_cast<float>(i * 37 % 101) - 50.0F;
  }
  const CodedRow coded(row, {1, 2});
  const LevelNumbers levels =
      coded.levels(uniform_level_code(30, 1.0 / 32), 3, coded.row.measure, {1, 2});
  const LevelNumbers first(levels.begin(), levels.begin() + 16);
  EXPECT_EQ(first, (LevelNumbers{8, 28, 26, 12, 20, 6, 19, 25, 6, 24, 12, 5, 12, 30, 13, 5}));
}

}  // namespace
}  // namespace spillway::codec
