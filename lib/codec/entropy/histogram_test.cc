// SPDX-License-Identifier: Apache-2.0
#include "codec/entropy/histogram.h"

#include <gtest/gtest.h>

#include "codec/entropy/sample_integers.h"

namespace spillway::codec::entropy {
namespace {

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

}  // namespace
}  // namespace spillway::codec::entropy
