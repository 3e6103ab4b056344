// SPDX-License-Identifier: Apache-2.0
#include "codec/entropy/probability_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "codec/entropy/alphabet.h"
#include "codec/entropy/rans.h"
#include "codec/sample_data.h"

namespace spillway::codec::entropy {
namespace {

// ------------------------------------------------------------------ alphabets

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

// ------------------------------------------------------------------ counts

TEST(HistogramTest, CountsAreTheSameWhateverTheType) {
  std::vector<std::int32_t> values = gaussian_integers(10'001, 40.0, 3);
  values[7] = -128;  // beyond 255 symbols
  for (const Alphabet& alphabet :
       {Alphabet::bytes(), Alphabet::ranges(), *Alphabet::direct(16), *Alphabet::direct(1000)}) {
    Histogram wide(alphabet);
    wide.add(std::span<const std::int32_t>(values));
    Histogram half(alphabet);
    half.add(std::span<const std::int16_t>(narrowed<std::int16_t>(values)));
    Histogram narrow(alphabet);
    narrow.add(std::span<const std::int8_t>(narrowed<std::int8_t>(values)));
    Histogram single(alphabet);
    for (const std::int32_t value : values) {
      single.add_run(value, 1);
    }
    EXPECT_EQ(wide, half);
    EXPECT_EQ(wide, narrow);
    EXPECT_EQ(wide, single);
    EXPECT_EQ(wide.total(), values.size());
  }
}

TEST(HistogramTest, CountsAreHalvedBeforeTheyOverflowAndRareSymbolsStay) {
  Histogram histogram(Alphabet::bytes());
  histogram.add_symbol(9, 1);
  for (int i = 0; i < 5; ++i) {
    histogram.add_run(0, Histogram::kMaxPortion);
  }
  EXPECT_LE(histogram.total(), Histogram::kMaxTotal);
  EXPECT_EQ(histogram.counts()[9], 1U);
  EXPECT_GT(histogram.counts()[0], 1U << 30);
}

TEST(HistogramTest, MergingAddsAndEntropyIsShannons) {
  Histogram histogram(Alphabet::bytes());
  histogram.add_run(1, 4);
  Histogram other(Alphabet::bytes());
  other.add_run(-1, 4);
  histogram.merge(other);
  EXPECT_DOUBLE_EQ(histogram.entropy_bits(), 8.0);
  histogram.clear();
  EXPECT_EQ(histogram, Histogram(Alphabet::bytes()));
}

Histogram counted(const Alphabet& alphabet, const std::vector<std::int32_t>& values) {
  Histogram histogram(alphabet);
  histogram.add(std::span<const std::int32_t>(values));
  return histogram;
}

void expect_sound(const ProbabilityTable& table) {
  const auto frequencies = table.frequencies();
  EXPECT_EQ(std::accumulate(frequencies.begin(), frequencies.end(), 0U), kProbabilityTotal);
  EXPECT_GE(frequencies.back(), 1);
  EXPECT_LT(*std::max_element(frequencies.begin(), frequencies.end()), kProbabilityTotal);
}

std::vector<std::uint8_t> bytes_of(const ProbabilityTable& table) {
  std::vector<std::uint8_t> bytes(kMaxTableBytes);
  base::ByteWriter writer(bytes);
  table.serialise(writer);
  EXPECT_TRUE(writer.ok());
  bytes.resize(writer.position());
  return bytes;
}

// Counts without floating point or a generator, so that they are the same everywhere.
Histogram fixed_counts(const Alphabet& alphabet, std::uint32_t seed) {
  Histogram histogram(alphabet);
  std::uint32_t state = seed;
  for (unsigned symbol = 0; symbol < alphabet.symbols(); ++symbol) {
    state = state * 1664525U + 1013904223U;
    histogram.add_symbol(symbol, (state >> 16) % (1U + 40'000U / (symbol + 1)));
  }
  return histogram;
}

TEST(ProbabilityTableTest, DegenerateCountsGiveSoundTables) {
  for (const Alphabet& alphabet :
       {Alphabet::bytes(), Alphabet::ranges(), *Alphabet::direct(2), *Alphabet::direct(4096)}) {
    Histogram histogram(alphabet);
    expect_sound(ProbabilityTable::of_counts(histogram));
    histogram.add_symbol(alphabet.escape(), 7);
    expect_sound(ProbabilityTable::of_counts(histogram));
    histogram.add_symbol(0, 1'000'000'000);
    expect_sound(ProbabilityTable::of_counts(histogram));
    for (unsigned symbol = 0; symbol < alphabet.symbols(); ++symbol) {
      histogram.add_symbol(symbol, 10'000);
    }
    expect_sound(ProbabilityTable::of_counts(histogram));
    for (const std::uint32_t scale : {0U, 1U, 77U, 256U, 100'000U, UINT32_MAX}) {
      expect_sound(ProbabilityTable::laplace(alphabet, scale));
      expect_sound(ProbabilityTable::gauss(alphabet, scale));
    }
  }
}

TEST(ProbabilityTableTest, HashesAreTheSameOnEveryMachine) {
  EXPECT_EQ(ProbabilityTable::of_counts(fixed_counts(Alphabet::bytes(), 1)).hash(), 2316234261U);
  EXPECT_EQ(ProbabilityTable::of_counts(fixed_counts(Alphabet::ranges(), 2)).hash(), 2154121790U);
  EXPECT_EQ(ProbabilityTable::of_counts(fixed_counts(*Alphabet::direct(2048), 3)).hash(),
            4137388448U);
  EXPECT_EQ(ProbabilityTable::laplace(Alphabet::bytes(), 1234).hash(), 1664498650U);
  EXPECT_EQ(ProbabilityTable::gauss(Alphabet::ranges(), 12'345).hash(), 2733564291U);
}

TEST(ProbabilityTableTest, OneCountMoreIsAnotherTable) {
  Histogram histogram = fixed_counts(Alphabet::bytes(), 1);
  const ProbabilityTable table = ProbabilityTable::of_counts(histogram);
  histogram.add_symbol(3, histogram.total() / 5000);
  EXPECT_NE(ProbabilityTable::of_counts(histogram).hash(), table.hash());
}

TEST(ProbabilityTableTest, CostIsWithinAThousandthOfTheEntropy) {
  for (const double sigma : {0.4, 4.0, 30.0}) {
    const Histogram histogram = counted(Alphabet::bytes(), gaussian_integers(100'000, sigma, 5));
    const double cost =
        static_cast<double>(ProbabilityTable::of_counts(histogram).cost_q8(histogram)) / 256.0;
    EXPECT_GE(cost, histogram.entropy_bits());
    // The escape's share of 2^-14 matters if there is little entropy; 1/256 is the cost's
    // resolution.
    EXPECT_LE(cost, histogram.entropy_bits() * 1.001 + 100'000 / 256.0);
  }
}

TEST(ProbabilityTableTest, OneNumberDescribesItsDistribution) {
  for (const double scale : {0.3, 1.0, 6.0, 200.0}) {
    const auto scale_q8 = static_cast<std::uint32_t>(scale * 256);
    for (const Alphabet& alphabet : {*Alphabet::direct(4096), Alphabet::ranges()}) {
      const Histogram laplace = counted(alphabet, laplace_integers(50'000, scale, 1));
      EXPECT_LE(ProbabilityTable::laplace(alphabet, scale_q8).cost_q8(laplace) / 256.0,
                laplace.entropy_bits() * 1.02);
      if (scale < 30.0) {  // the samples are clamped
        const Histogram gauss = counted(alphabet, gaussian_integers(50'000, scale, 2));
        EXPECT_LE(ProbabilityTable::gauss(alphabet, scale_q8).cost_q8(gauss) / 256.0,
                  gauss.entropy_bits() * 1.02);
      }
    }
  }
}

TEST(ProbabilityTableTest, SerialisedTablesComeBack) {
  for (const Alphabet& alphabet :
       {Alphabet::bytes(), Alphabet::ranges(), *Alphabet::direct(4096)}) {
    for (const ProbabilityTable& table : {ProbabilityTable::of_counts(fixed_counts(alphabet, 9)),
                                          ProbabilityTable::of_counts(Histogram(alphabet)),
                                          ProbabilityTable::laplace(alphabet, 700)}) {
      const std::vector<std::uint8_t> bytes = bytes_of(table);
      base::ByteReader reader(bytes);
      const auto parsed = ProbabilityTable::parse(reader);
      ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
      EXPECT_EQ(*parsed, table);
      EXPECT_EQ(reader.remaining(), 0U);
    }
  }
}

TEST(ProbabilityTableTest, CutTablesAndChangedOnesAreErrorsOrSound) {
  const ProbabilityTable table = ProbabilityTable::laplace(Alphabet::bytes(), 700);
  const std::vector<std::uint8_t> bytes = bytes_of(table);
  EXPECT_LT(bytes.size(), 120U);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    base::ByteReader reader(base::ByteView(bytes).first(size));
    EXPECT_FALSE(ProbabilityTable::parse(reader).ok());
  }
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::vector<std::uint8_t> changed = bytes;
    changed[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
    base::ByteReader reader(changed);
    const auto parsed = ProbabilityTable::parse(reader);
    if (parsed.ok()) {
      expect_sound(*parsed);
      EXPECT_NE(parsed->hash(), table.hash());
    }
  }
}

// The encoders' replacement for division, for every possible frequency.
TEST(RansTablesTest, ReciprocalsDivideExactly) {
  for (std::uint32_t frequency = 1; frequency < kProbabilityTotal; ++frequency) {
    Histogram histogram(*Alphabet::direct(3));
    histogram.add_symbol(0, frequency);
    histogram.add_symbol(1, kProbabilityTotal - frequency);
    const EncodeTable table(ProbabilityTable::of_counts(histogram));
    const ExactEntry& exact = table.entries()[0];
    const LaneEntry& lane = table.lane_entries()[0];
    const std::uint32_t actual = exact.frequency;
    const unsigned code = lane.packed >> 28;
    const unsigned shift = code == 15 ? 0 : std::min(code, 13U);
    const std::uint32_t largest = (actual << 18) - 1;
    for (const std::uint32_t x :
         {0U, actual - 1, actual, kStateMin, largest / 2 / actual * actual - 1,
          largest / 2 / actual * actual, largest - actual, largest - 1, largest}) {
      __extension__ using Wide = unsigned __int128;
      const auto high = static_cast<std::uint32_t>(Wide{exact.reciprocal} * x >> 64);
      const std::uint32_t quotient = x / actual;
      // Frequency 1 gives one too little for all x except 0; the bias corrects it.
      EXPECT_EQ(high, actual == 1 ? std::max(x, 1U) - 1 : quotient) << actual << " " << x;
      const std::uint64_t sum = std::uint64_t{x} + (code >= 14 ? 1 : 0);
      EXPECT_EQ(static_cast<std::uint32_t>(sum * lane.reciprocal >> 32) >> shift, quotient)
          << actual << " " << x;
    }
  }
}

}  // namespace

}  // namespace spillway::codec::entropy
