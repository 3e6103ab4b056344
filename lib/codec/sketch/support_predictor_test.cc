// SPDX-License-Identifier: Apache-2.0
#include "codec/sketch/support_predictor.h"

#include <gtest/gtest.h>

#include "codec/sketch/sketch_testing.h"

namespace spillway::codec::sketch {
namespace {

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
