// SPDX-License-Identifier: Apache-2.0
#include "codec/entropy/probability_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "codec/entropy/rans_tables.h"
#include "codec/entropy/sample_integers.h"

namespace spillway::codec::entropy {
namespace {

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
