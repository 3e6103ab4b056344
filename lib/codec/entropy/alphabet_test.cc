// SPDX-License-Identifier: Apache-2.0
#include "codec/entropy/alphabet.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "base/random.h"

namespace spillway::codec::entropy {
namespace {

std::vector<std::uint32_t> folded_samples() {
  std::vector<std::uint32_t> samples;
  for (std::uint32_t folded = 0; folded < 5000; ++folded) {
    samples.push_back(folded);
  }
  for (unsigned bit = 12; bit < 32; ++bit) {
    samples.push_back((std::uint32_t{1} << bit) - 1);
    samples.push_back(std::uint32_t{1} << bit);
    samples.push_back((std::uint32_t{3} << (bit - 1)) + 5);
  }
  samples.push_back(UINT32_MAX);
  return samples;
}

TEST(AlphabetTest, FoldingPutsSmallMagnitudesFirstAndLosesNothing) {
  EXPECT_EQ(fold(0), 0U);
  EXPECT_EQ(fold(-1), 1U);
  EXPECT_EQ(fold(1), 2U);
  EXPECT_EQ(fold(INT32_MIN), UINT32_MAX);
  for (const std::int32_t value : {0, 1, -1, 127, -128, INT32_MAX, INT32_MIN, 1 << 20}) {
    EXPECT_EQ(unfold(fold(value)), value);
  }
}

TEST(AlphabetTest, EveryValueComesBackFromSymbolAndOffset) {
  for (const Alphabet& alphabet : {Alphabet::bytes(), Alphabet::ranges()}) {
    for (const std::uint32_t folded : folded_samples()) {
      const SymbolCode code = alphabet.code(folded);
      ASSERT_LT(code.symbol, alphabet.symbols());
      EXPECT_EQ(code.bits, alphabet.bits_of(code.symbol));
      EXPECT_EQ(alphabet.first_of(code.symbol) + code.offset, folded);
    }
  }
}

TEST(AlphabetTest, RangesNeedNoEscapeAndFewSymbolsForTwelveBits) {
  const Alphabet ranges = Alphabet::ranges();
  EXPECT_LT(ranges.code(UINT32_MAX).symbol, ranges.escape());
  EXPECT_LT(ranges.code(4095).symbol, 48);
  for (unsigned symbol = 1; symbol < ranges.escape(); ++symbol) {
    EXPECT_EQ(ranges.first_of(symbol - 1) + (std::uint64_t{1} << ranges.bits_of(symbol - 1)),
              ranges.first_of(symbol));
  }
}

TEST(AlphabetTest, OnlyAlphabetsThatThereAreCanBeMade) {
  EXPECT_FALSE(Alphabet::direct(1).ok());
  EXPECT_TRUE(Alphabet::direct(2).ok());
  EXPECT_TRUE(Alphabet::direct(kMaxSymbols).ok());
  EXPECT_FALSE(Alphabet::direct(kMaxSymbols + 1).ok());
  EXPECT_FALSE(Alphabet::of(1, 64).ok());
  EXPECT_FALSE(Alphabet::of(2, 64).ok());
  EXPECT_EQ(*Alphabet::of(1, Alphabet::ranges().symbols()), Alphabet::ranges());
}

}  // namespace
}  // namespace spillway::codec::entropy
