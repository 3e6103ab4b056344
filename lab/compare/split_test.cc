// SPDX-License-Identifier: Apache-2.0
#include "lab/compare/split.h"

#include <gtest/gtest.h>

#include "lab/compare/comparison_testing.h"

namespace spillway::compare {
namespace {

// Runs in which every step takes the given time.
Comparison with_steps(const std::vector<std::pair<const char*, double>>& transports) {
  Comparison comparison;
  for (const auto& [name, step_ms] : transports) {
    RunRecord& run = comparison.runs.emplace_back(sample_run(name, 1.0));
    for (LogStep& step : run.log.steps) {
      step.step_ms = step_ms;
    }
  }
  return comparison;
}

TEST(Split, AGainIsBitsTimesTransport) {
  const auto split = split_of(with_steps({{"tcp", 600},
                                          {"tcp-bbr", 750},
                                          {"tcp-fp16", 400},
                                          {"spillway-exact", 480},
                                          {"spillway-16", 200},
                                          {"spillway-over-tcp", 240},
                                          {"spillway", 120}}));
  ASSERT_TRUE(split.has_value());
  ASSERT_EQ(split->shares.size(), 6U);
  EXPECT_EQ(split->metric.key, "step_p50_ms");
  EXPECT_EQ(split->baseline, "tcp");
  for (const GainShare& share : split->shares) {
    ASSERT_TRUE(share.gain && share.bits && share.transport) << share.name;
    EXPECT_NEAR(*share.gain, *share.bits * *share.transport, 1e-9) << share.name;
  }
  const auto expect = [&split](std::size_t at, const char* name, double bits, double transport) {
    EXPECT_EQ(split->shares[at].name, name);
    EXPECT_NEAR(*split->shares[at].bits, bits, 1e-9) << name;
    EXPECT_NEAR(*split->shares[at].transport, transport, 1e-9) << name;
  };
  expect(0, "tcp-bbr", 1, 0.8);
  expect(1, "tcp-fp16", 1.5, 1);
  expect(2, "spillway-exact", 1, 1.25);
  expect(3, "spillway-16", 1.5, 2);
  expect(4, "spillway-over-tcp", 2.5, 1);
  expect(5, "spillway", 2.5, 2);
}

TEST(Split, TheBaselineIsTheFasterTcp) {
  Comparison comparison = with_steps({{"tcp", 600},
                                      {"tcp-bbr", 400},
                                      {"tcp-fp16", 300},
                                      {"spillway-exact", 200},
                                      {"spillway-16", 100}});
  const auto split = split_of(comparison);
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->baseline, "tcp-bbr");
  ASSERT_EQ(split->shares.size(), 4U);
  const auto expect = [&split](std::size_t at, const char* control, double bits, double transport) {
    const GainShare& share = split->shares[at];
    EXPECT_EQ(share.control, control) << share.name;
    EXPECT_NEAR(*share.bits, bits, 1e-9) << share.name;
    EXPECT_NEAR(*share.transport, transport, 1e-9) << share.name;
    EXPECT_NEAR(*share.gain, *share.bits * *share.transport, 1e-9) << share.name;
  };
  expect(0, "tcp-bbr", 1, 2.0 / 3);  // tcp itself is slower
  expect(1, "tcp-fp16", 4.0 / 3, 1);
  expect(2, "tcp-bbr", 1, 2);
  expect(3, "tcp-fp16", 4.0 / 3, 3);
  EXPECT_TRUE(split_explanation(*split).starts_with("Gains are over tcp-bbr, "));
  comparison.runs[1].outcome.exit_codes = {0, 1};  // a run that failed is no baseline
  EXPECT_EQ(split_of(comparison)->baseline, "tcp");
}

TEST(Split, WithAFlatTwinSchedulingIsTakenOutOfTheTransport) {
  const auto split = split_of(with_steps(
      {{"tcp", 600}, {"spillway-over-tcp", 300}, {"spillway-flat", 150}, {"spillway", 120}}));
  ASSERT_TRUE(split.has_value());
  const GainShare& flat = split->shares[1];
  EXPECT_EQ(flat.transport, 2);
  EXPECT_EQ(flat.scheduling, std::nullopt);
  const GainShare& ours = split->shares[2];
  EXPECT_EQ(ours.gain, 5);
  EXPECT_EQ(ours.bits, 2);
  EXPECT_EQ(ours.transport, 2);
  EXPECT_EQ(ours.scheduling, 1.25);
}

TEST(Split, WithoutTheControlTheGainStandsAlone) {
  const auto split = split_of(with_steps({{"spillway", 100}, {"tcp", 300}}));
  ASSERT_TRUE(split.has_value());
  ASSERT_EQ(split->shares.size(), 1U);
  EXPECT_EQ(split->shares[0].gain, 3);
  EXPECT_EQ(split->shares[0].control, "spillway-over-tcp");
  EXPECT_EQ(split->shares[0].bits, std::nullopt);
  EXPECT_EQ(split->shares[0].transport, std::nullopt);
}

TEST(Split, WithoutTcpOrWithNothingElseThereIsNone) {
  EXPECT_FALSE(split_of(with_steps({{"spillway-over-tcp", 100}, {"spillway", 300}})).has_value());
  EXPECT_FALSE(split_of(with_steps({{"tcp", 100}})).has_value());
}

TEST(Split, ARunThatFailedHasNoGainAndIsNoControl) {
  Comparison comparison = with_steps({{"tcp", 300}, {"spillway-over-tcp", 200}, {"spillway", 100}});
  comparison.runs[1].outcome.exit_codes = {0, 1};
  comparison.runs[1].log = {};
  const auto split = split_of(comparison);
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->metric.key, "step_p50_ms");  // the other runs have them
  EXPECT_EQ(split->shares[0].gain, std::nullopt);
  EXPECT_EQ(split->shares[1].gain, 3);
  EXPECT_EQ(split->shares[1].bits, std::nullopt);
  comparison.runs[2].repeats = {sample_run("spillway", 1.0)};
  comparison.runs[2].repeats[0].outcome.exit_codes = {1, 0};
  EXPECT_EQ(split_of(comparison)->shares[1].gain, std::nullopt);
}

TEST(Split, WhereARunHasNoStepsTheWholeTimesAreCompared) {
  Comparison comparison = with_steps({{"tcp", 300}, {"spillway-exact", 100}});
  comparison.runs[1].log = {};
  const auto split = split_of(comparison);
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->metric.key, "elapsed_seconds");
  EXPECT_EQ(split->shares[0].gain, 1);
  EXPECT_NE(split_explanation(*split).find("time in all"), std::string::npos);
}

}  // namespace
}  // namespace spillway::compare
