// SPDX-License-Identifier: Apache-2.0
//
// Every kernel table against the scalar oracle, bit for bit.
#include "codec/kernels.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>

#include "base/random.h"
#include "codec/sample_data.h"

namespace spillway::codec {
namespace {

class KernelsMatchOracle : public testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& oracle_ = scalar_kernels();
  const Kernels& kernels_ = *GetParam();
};

std::vector<std::uint32_t> random_words(std::size_t count, std::uint64_t seed) {
  base::RandomSequence random(seed);
  std::vector<std::uint32_t> words(count);
  for (std::uint32_t& word : words) {
    word = random.next_word();
  }
  return words;
}

std::vector<std::uint8_t> random_bytes(std::size_t count, std::uint64_t seed) {
  base::RandomSequence random(seed);
  std::vector<std::uint8_t> bytes(count);
  for (std::uint8_t& byte : bytes) {
    byte = static_cast<std::uint8_t>(random.next_word());
  }
  return bytes;
}

void expect_same_bits(std::span<const float> a, std::span<const float> b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_TRUE(a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

TEST_P(KernelsMatchOracle, RotationsOfEveryLength) {
  for (unsigned log2 = 8; log2 <= 15; ++log2) {
    const std::size_t length = std::size_t{1} << log2;
    const auto signs = random_words(length / 32, log2);
    std::vector<float> a = lognormal_values(length, log2);
    std::vector<float> b = a;
    oracle_.rotate(a.data(), log2, signs.data());
    kernels_.rotate(b.data(), log2, signs.data());
    expect_same_bits(a, b);
    const RowMoments expected = oracle_.measure_and_rotate(b.data(), a.data(), log2, signs.data());
    const RowMoments actual = kernels_.measure_and_rotate(b.data(), b.data(), log2, signs.data());
    EXPECT_EQ(expected.sum_squares, actual.sum_squares);
    EXPECT_EQ(expected.max_square, actual.max_square);
    expect_same_bits(a, b);
    oracle_.unrotate(a.data(), log2, signs.data(), 0.37F);
    kernels_.unrotate(b.data(), log2, signs.data(), 0.37F);
    expect_same_bits(a, b);
    oracle_.hadamard(a.data(), log2);
    kernels_.hadamard(b.data(), log2);
    expect_same_bits(a, b);
  }
}

// Gaussian values, and values around every breakpoint of the compander and beyond its range.
std::vector<float> demanding_magnitudes() {
  std::vector<float> values = gaussian_values(8192, 4);
  for (const double unit : internal::kBreakUnits) {
    float value = static_cast<float>(unit) - 64e-7F;
    for (int i = 0; i < 64; ++i) {
      values.push_back(i % 2 == 0 ? value : -value);
      value = std::nextafter(value, 100.0F);
    }
  }
  for (const float extreme : {0.0F, -0.0F, 1e-38F, 1e-45F, 7.0F, 100.0F, -1e6F, 5.9999995F}) {
    values.push_back(extreme);
  }
  values.resize((values.size() + kSpanQuantum - 1) / kSpanQuantum * kSpanQuantum);
  return values;
}

TEST_P(KernelsMatchOracle, QuantiseAndRefine) {
  const std::vector<float> values = demanding_magnitudes();
  const std::size_t count = values.size();
  for (const float inverse_scale : {1.0F, 0.731F, 3e-3F, 1.7e4F}) {
    std::array<std::vector<std::uint8_t>, 4> a;
    std::array<std::vector<std::uint8_t>, 4> b;
    for (unsigned k = 0; k < 4; ++k) {
      a[k].resize(count);
      b[k].resize(count);
    }
    EXPECT_EQ(oracle_.quantise(values.data(), count, inverse_scale, a[0].data(), a[1].data()),
              kernels_.quantise(values.data(), count, inverse_scale, b[0].data(), b[1].data()));
    oracle_.refine(values.data(), count, inverse_scale, a[0].data(), a[1].data(), a[2].data(),
                   a[3].data());
    kernels_.refine(values.data(), count, inverse_scale, b[0].data(), b[1].data(), b[2].data(),
                    b[3].data());
    EXPECT_EQ(a, b) << inverse_scale;
  }
}

TEST_P(KernelsMatchOracle, SplitAndMergeEveryCountAndPlaneNumber) {
  for (std::size_t count = 32; count <= 416; count += 32) {
    const auto codes = random_bytes(count, count);
    for (unsigned planes = 1; planes <= 8; ++planes) {
      const std::size_t stride = count / 8 + 3;  // planes need not be adjacent
      std::vector<std::uint8_t> a(8 * stride, 0xEE);
      std::vector<std::uint8_t> b = a;
      oracle_.split_planes(codes.data(), count, planes, a.data(), stride);
      kernels_.split_planes(codes.data(), count, planes, b.data(), stride);
      ASSERT_EQ(a, b);

      std::vector<std::uint8_t> merged_a(count);
      std::vector<std::uint8_t> merged_b(count);
      oracle_.merge_planes(a.data(), stride, planes, count, merged_a.data());
      kernels_.merge_planes(a.data(), stride, planes, count, merged_b.data());
      ASSERT_EQ(merged_a, merged_b);
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(merged_a[i], codes[i] & (0xFF00U >> planes & 0xFFU));
      }
    }
  }
}

TEST_P(KernelsMatchOracle, DequantiseEveryCodeAtEveryPrecision) {
  constexpr std::size_t kCodes = 65536;
  for (unsigned planes = 9; planes <= 32; ++planes) {
    std::array<std::vector<std::uint8_t>, 4> bytes;
    for (auto& byte : bytes) {
      byte.resize(kCodes);
    }
    const std::uint64_t kept = ~std::uint64_t{0} << (32 - planes);
    for (std::uint32_t i = 0; i < kCodes; ++i) {
      const auto code =
          static_cast<std::uint32_t>((std::uint64_t{i} << 16 | (i * 40503U & 0xFFFF)) & kept);
      for (unsigned k = 0; k < 4; ++k) {
        bytes[k][i] = static_cast<std::uint8_t>(code >> (24 - 8 * k));
      }
    }
    std::vector<float> a(kCodes);
    std::vector<float> b(kCodes);
    if (planes <= 16) {
      oracle_.dequantise(bytes[0].data(), bytes[1].data(), kCodes, planes, a.data());
      kernels_.dequantise(bytes[0].data(), bytes[1].data(), kCodes, planes, b.data());
    } else {
      oracle_.dequantise_refined(bytes[0].data(), bytes[1].data(), bytes[2].data(), bytes[3].data(),
                                 kCodes, planes, a.data());
      kernels_.dequantise_refined(bytes[0].data(), bytes[1].data(), bytes[2].data(),
                                  bytes[3].data(), kCodes, planes, b.data());
    }
    expect_same_bits(a, b);
  }
}

TEST_P(KernelsMatchOracle, DrawWords) {
  const base::RandomBlock counter = {0xFFFFFFF8U, 5, 6, 7};  // the first word overflows
  for (const std::size_t count : {2 * kDrawWords, 16 * kDrawWords}) {
    std::vector<std::uint32_t> a(count);
    std::vector<std::uint32_t> b(count);
    oracle_.draw_words(0x0123456789ABCDEFU, counter, count, a.data());
    kernels_.draw_words(0x0123456789ABCDEFU, counter, count, b.data());
    EXPECT_EQ(a, b);
    EXPECT_EQ(a[8], base::random_block(0x0123456789ABCDEFU, counter)[1]);
    EXPECT_EQ(a[33], base::random_block(0x0123456789ABCDEFU, {1, 5, 6, 7})[0]);
  }
}

// Cells for every distance of a level table, and every integer of a range.
std::vector<std::uint32_t> cells_of(std::span<const std::uint32_t> levels) {
  std::vector<std::uint32_t> cells;
  for (std::size_t i = 0; i + 1 < levels.size(); ++i) {
    cells.resize(levels[i + 1], (levels[i + 1] - levels[i]) << 16 | levels[i]);
  }
  cells.push_back(levels.back());
  return cells;
}

TEST_P(KernelsMatchOracle, RoundLevels) {
  const std::vector<float> values = demanding_magnitudes();
  std::vector<std::uint32_t> dither = random_words(values.size() / 2, 6);
  std::fill_n(dither.begin(), 256, 0);
  std::fill_n(dither.begin() + 256, 256, 0xFFFFFFFFU);
  const std::vector<std::uint32_t> table = {0, 3, 5, 13, 14, 16, 1000};
  for (const std::vector<std::uint32_t>& cells : {std::vector<std::uint32_t>{}, cells_of(table),
                                                  cells_of(std::vector<std::uint32_t>{0, 1})}) {
    for (const float range : {1.0F, 15.0F, 1000.0F, 65535.0F}) {
      if (!cells.empty() && range + 1.0F != static_cast<float>(cells.size())) {
        continue;
      }
      for (const float factor : {0.0F, 1.0F, range / 4.0F, 1e-44F, 3e38F}) {
        const std::uint32_t* const lookup = cells.empty() ? nullptr : cells.data();
        std::vector<std::uint32_t> a(values.size());
        std::vector<std::uint32_t> b(values.size());
        EXPECT_EQ(oracle_.round_levels(values.data(), values.size(), factor, range, lookup,
                                       dither.data(), a.data()),
                  kernels_.round_levels(values.data(), values.size(), factor, range, lookup,
                                        dither.data(), b.data()));
        EXPECT_EQ(a, b) << range << " by " << factor;
        for (const std::uint32_t level : a) {
          ASSERT_LE(static_cast<float>(level), range);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllTables, KernelsMatchOracle, testing::ValuesIn(available_kernels()),
                         [](const auto& param) { return std::string(param.param->name); });

TEST(Kernels, TheScalarTableIsAlwaysThereAndLast) {
  ASSERT_FALSE(available_kernels().empty());
  EXPECT_EQ(available_kernels().back(), &scalar_kernels());
}

}  // namespace
}  // namespace spillway::codec
