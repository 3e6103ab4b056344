// SPDX-License-Identifier: Apache-2.0
#include "codec/sketch/sparse_code.h"

#include <gtest/gtest.h>

#include "codec/reference/sparse_reducer.h"
#include "codec/sketch/sketch_testing.h"
#include "codec/sketch/support.h"

namespace spillway::codec::sketch {
namespace {

using reference::true_sum;
using Parts = std::vector<std::vector<std::int32_t>>;

constexpr unsigned kRanks = 4;

SparseCode make_code(std::size_t length, const SparseOptions& options = {.contributors = kRanks}) {
  return SparseCode::make(length, options).value();
}

// Gradients of a step: most of the support stays, some is new at each rank.
Parts parts_of_step(std::size_t length, std::uint64_t step) {
  Parts parts;
  for (std::uint64_t rank = 0; rank < kRanks; ++rank) {
    Support support = random_support(length, length / 20, 1);
    support |= random_support(length, length / 500, 100 * step + rank + 2);
    parts.push_back(values_on(support, 1000 * step + rank, largest_number(kRanks)));
  }
  return parts;
}

// As it travels: numbers are added, misses go as bytes.
SparsePart sum_of(const SparseCode& code, const Parts& parts, std::uint64_t seed) {
  SparsePart sum{std::vector<std::int32_t>(code.numbers()), Support(parts[0].size())};
  for (const auto& values : parts) {
    auto part = code.encode(values, seed).value();
    const auto bytes = encode_support(part.misses, code.predicted());
    part.misses = decode_support(bytes, code.predicted()).value();
    sum.add(part);
  }
  return sum;
}

TEST(SparseCode, SumsAreExactStepAfterStep) {
  constexpr std::size_t kLength = 40000;
  for (const auto rule : {PredictionRule::kLast, PredictionRule::kCounter}) {
    SparseCode code = make_code(kLength, {.contributors = kRanks, .rule = rule});
    std::size_t unrecovered = 0;
    for (std::uint64_t step = 0; step < 8; ++step) {
      const Parts parts = parts_of_step(kLength, step);
      const auto found = code.decode(sum_of(code, parts, step), step);
      ASSERT_TRUE(found.ok()) << found.status().message();
      const auto truth = true_sum(parts);
      for (std::size_t index = 0; index < kLength; ++index) {
        ASSERT_EQ(found->values[index], found->unrecovered.contains(index) ? 0 : truth[index]);
      }
      unrecovered += found->unrecovered.count();
      if (step > 2) {
        EXPECT_GT(found->misses, 100U);
        EXPECT_LT(code.numbers(), kLength / 10);
      }
      code.advance(*found);
    }
    EXPECT_LT(unrecovered, 10U);
  }
}

TEST(SparseCode, TheFirstStepIsDense) {
  const SparseCode code = make_code(1000);
  EXPECT_EQ(code.numbers(), 1000U);
  EXPECT_EQ(code.shape().cells(), 0U);
}

TEST(SparseCode, MoreMissesThanThereIsRoomForAreNamedAndPredictedNextTime) {
  constexpr std::size_t kLength = 100000;
  SparseCode code = make_code(kLength);
  for (std::uint64_t step = 0; step < 4; ++step) {
    code.advance(code.decode(sum_of(code, parts_of_step(kLength, 1), step), step).value());
  }
  Parts burst = parts_of_step(kLength, 1);
  burst[0] = values_on(random_support(kLength, 5000, 77), 1, largest_number(kRanks));
  const auto found = code.decode(sum_of(code, burst, 9), 9);
  ASSERT_TRUE(found.ok());
  EXPECT_GT(found->unrecovered.count(), 1000U);
  const auto truth = true_sum(burst);
  for (std::size_t index = 0; index < kLength; ++index) {
    ASSERT_EQ(found->values[index], found->unrecovered.contains(index) ? 0 : truth[index]);
  }
  EXPECT_FALSE(found->unrecovered.meets(code.predicted()));
  code.advance(*found);
  const auto again = code.decode(sum_of(code, burst, 10), 10);
  EXPECT_EQ(again->unrecovered.count(), 0U);
  EXPECT_EQ(again->values, truth);
}

TEST(SparseCode, StepsAreDenseWhileThePredictionMissesMuch) {
  constexpr std::size_t kLength = 40000;
  SparseCode code = make_code(kLength, {.contributors = kRanks, .most_misses_percent = 25});
  const auto advance = [&](std::size_t fresh, std::uint64_t step) {
    Support support = random_support(kLength, kLength / 20, 1);
    support |= random_support(kLength, fresh, step + 2);
    const Parts parts(1, values_on(support, step, 1000));
    code.advance(code.decode(sum_of(code, parts, step), step).value());
  };
  advance(0, 0);  // all of its values could be misses
  EXPECT_EQ(code.numbers(), kLength);
  advance(100, 1);
  EXPECT_LT(code.numbers(), kLength / 10);
  advance(1500, 2);
  EXPECT_EQ(code.numbers(), kLength);
  advance(1500, 3);  // the misses that a dense step would have had count
  EXPECT_EQ(code.numbers(), kLength);
  advance(100, 4);
  EXPECT_LT(code.numbers(), kLength / 5);
}

TEST(SparseCode, StepsAreDenseWhileMuchIsPredicted) {
  constexpr std::size_t kLength = 40000;
  for (const unsigned percent : {40U, 60U}) {
    SparseCode code = make_code(kLength, {.most_numbers_percent = percent});
    const Parts parts(1, values_on(random_support(kLength, kLength / 2, 1), 1, 1000));
    for (std::uint64_t step = 0; step < 3; ++step) {
      code.advance(code.decode(sum_of(code, parts, step), step).value());
    }
    EXPECT_EQ(code.numbers() == kLength, percent == 40);
  }
}

TEST(SparseCode, WhatDidNotArriveIsNamed) {
  constexpr std::size_t kLength = 40000;
  SparseCode code = make_code(kLength);
  for (std::uint64_t step = 0; step < 4; ++step) {
    code.advance(code.decode(sum_of(code, parts_of_step(kLength, step), step), step).value());
  }
  const Parts parts = parts_of_step(kLength, 4);
  SparsePart sum = sum_of(code, parts, 4);
  const Support erased = random_support(code.numbers(), code.numbers() / 50, 3);
  erased.for_each([&](std::size_t i) { sum.numbers[i] = -1; });
  const auto found = code.decode(sum, 4, erased);
  ASSERT_TRUE(found.ok()) << found.status().message();
  const auto truth = true_sum(parts);
  for (std::size_t index = 0; index < kLength; ++index) {
    ASSERT_EQ(found->values[index], found->unrecovered.contains(index) ? 0 : truth[index]);
  }
  EXPECT_TRUE(found->unrecovered.meets(code.predicted()));
  EXPECT_LT(found->unrecovered.count(), code.numbers() / 25);
}

TEST(SparseCode, AllRanksAreInTheSameState) {
  constexpr std::size_t kLength = 20000;
  SparseCode one = make_code(kLength);
  SparseCode other = make_code(kLength);
  for (std::uint64_t step = 0; step < 5; ++step) {
    Parts parts = parts_of_step(kLength, step);
    const SparsePart sum = sum_of(one, parts, step);
    std::reverse(parts.begin(), parts.end());
    const SparsePart reversed = sum_of(other, parts, step);
    EXPECT_EQ(sum.numbers, reversed.numbers);
    EXPECT_EQ(sum.misses, reversed.misses);
    one.advance(one.decode(sum, step).value());
    other.advance(other.decode(reversed, step).value());
    EXPECT_EQ(one.fingerprint(), other.fingerprint());
    EXPECT_EQ(one.predicted(), other.predicted());
    EXPECT_EQ(one.shape(), other.shape());
  }
  other.reset();
  EXPECT_NE(one.fingerprint(), other.fingerprint());
  EXPECT_EQ(other.numbers(), kLength);
}

TEST(SparseCode, SumsOfAnotherStepAreErrors) {
  constexpr std::size_t kLength = 20000;
  SparseCode code = make_code(kLength);
  const SparsePart first = sum_of(code, parts_of_step(kLength, 0), 0);
  for (std::uint64_t step = 0; step < 3; ++step) {
    code.advance(code.decode(sum_of(code, parts_of_step(kLength, step), step), step).value());
  }
  EXPECT_FALSE(code.decode(first, 0).ok());
  SparsePart sum = sum_of(code, parts_of_step(kLength, 3), 3);
  EXPECT_FALSE(code.decode(sum, 4).ok());  // another seed
  const Support misses = sum.misses;
  sum.misses = Support(kLength);
  EXPECT_FALSE(code.decode(sum, 3).ok());
  sum.misses = misses;
  sum.misses |= code.predicted();
  EXPECT_FALSE(code.decode(sum, 3).ok());
  EXPECT_FALSE(code.decode({{}, Support(kLength)}, 3).ok());
}

TEST(SparseCode, TensorsOfEveryKindPass) {
  for (const std::size_t length : {0, 1, 2, 64, 700}) {
    SparseCode code = make_code(length);
    const Parts zeros(kRanks, std::vector<std::int32_t>(length));
    const Parts full(kRanks, values_on(Support::all(length), 1, largest_number(kRanks)));
    std::uint64_t step = 0;
    for (const Parts* parts : {&zeros, &zeros, &full, &full, &full, &zeros, &full}) {
      const auto found = code.decode(sum_of(code, *parts, step), step);
      ASSERT_TRUE(found.ok());
      const auto truth = true_sum(*parts);
      for (std::size_t index = 0; index < length; ++index) {
        ASSERT_EQ(found->values[index], found->unrecovered.contains(index) ? 0 : truth[index]);
      }
      EXPECT_LE(code.numbers(), length);
      code.advance(*found);
      ++step;
    }
  }
}

TEST(SparseCode, ValuesThatMightNotAddUpAreRefused) {
  const SparseCode code = make_code(3);
  EXPECT_TRUE(code.encode(std::vector<std::int32_t>{0, INT32_MAX / 4, -(INT32_MAX / 4)}, 1).ok());
  EXPECT_FALSE(code.encode(std::vector<std::int32_t>{0, INT32_MAX / 4 + 1, 0}, 1).ok());
  EXPECT_FALSE(code.encode(std::vector<std::int32_t>{0, 0, -(INT32_MAX / 4) - 1}, 1).ok());
  EXPECT_FALSE(code.encode(std::vector<std::int32_t>{INT32_MIN, 0, 0}, 1).ok());
  EXPECT_FALSE(code.encode(std::vector<std::int32_t>{0, 0}, 1).ok());
}

TEST(SparseCode, OptionsThatMakeNoSenseAreRefused) {
  EXPECT_FALSE(SparseCode::make(10, {.contributors = 0}).ok());
  EXPECT_FALSE(SparseCode::make(10, {.cells_percent = 120}).ok());
  EXPECT_FALSE(SparseCode::make(10, {.headroom_percent = 99}).ok());
  EXPECT_FALSE(SparseCode::make(10, {.most_numbers_percent = 101}).ok());
  EXPECT_FALSE(SparseCode::make(kMaxSupportLength + 1, {}).ok());
}

TEST(SupportPredictor, PredictsEverythingAtTheStart) {
  for (const auto rule : {PredictionRule::kLast, PredictionRule::kCounter}) {
    SupportPredictor predictor(100, rule);
    EXPECT_EQ(predictor.predicted(), Support::all(100));
    predictor.advance(random_support(100, 20, 1));
    EXPECT_EQ(predictor.predicted(), random_support(100, 20, 1));
    predictor.reset();
    EXPECT_EQ(predictor.predicted(), Support::all(100));
  }
}

TEST(SupportPredictor, LastIsWhatTheLastSumWas) {
  SupportPredictor predictor(100, PredictionRule::kLast);
  predictor.advance(random_support(100, 50, 1));
  predictor.advance(random_support(100, 30, 2));
  EXPECT_EQ(predictor.predicted(), random_support(100, 30, 2));
}

TEST(SupportPredictor, CountersCountFromNoneToThree) {
  // Each index has its own history; a plain counter is the oracle.
  constexpr std::size_t kLength = 1000;
  SupportPredictor predictor(kLength, PredictionRule::kCounter);
  std::vector<int> counters(kLength, 2);
  for (std::uint64_t step = 0; step < 40; ++step) {
    const Support nonzero = random_support(kLength, 200 + 15 * step, step);
    predictor.advance(nonzero);
    for (std::size_t index = 0; index < kLength; ++index) {
      int& counter = counters[index];
      counter = nonzero.contains(index) ? std::min(counter + 1, 3) : std::max(counter - 1, 0);
      ASSERT_EQ(predictor.predicted().contains(index), counter >= 2);
    }
  }
}

TEST(SupportPredictor, FingerprintsTellPredictionsApart) {
  SupportPredictor mine(1000, PredictionRule::kCounter);
  SupportPredictor other = mine;
  mine.advance(random_support(1000, 100, 1));
  EXPECT_NE(mine.fingerprint(), other.fingerprint());
  other.advance(random_support(1000, 100, 1));
  EXPECT_EQ(mine.fingerprint(), other.fingerprint());
  // Both predict the same, but one will change its prediction later.
  Support one_less = random_support(1000, 100, 1);
  mine.advance(one_less);
  other.advance(one_less);
  Support one_more = one_less;
  std::size_t absent = 0;
  while (one_more.contains(absent)) {
    ++absent;
  }
  one_more.insert(absent);
  mine.advance(one_less);
  other.advance(one_more);
  EXPECT_EQ(mine.predicted(), other.predicted());
  EXPECT_NE(mine.fingerprint(), other.fingerprint());
}

}  // namespace

}  // namespace spillway::codec::sketch
