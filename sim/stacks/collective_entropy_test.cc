// SPDX-License-Identifier: Apache-2.0
//
// All-reduces with the codec entropy, direct and ring, with tables that are not sent.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "sim/stacks/collective_testing.h"

namespace spillway::sim {
namespace {

using collective::Algorithm;
using collective::ChunkRule;
using collective::Codec;
using collective::Tolerance;

constexpr std::size_t kEntropyCount = 80'000;

Tolerance by_entropy(std::uint64_t tensor = 0, std::uint8_t bits = 8) {
  return {
      .codec = Codec::kEntropy, .precision = bits, .loss_bound_ppm = 0, .feedback_tensor = tensor};
}

// Scales layers differently, as gradients have them.
void scale_by_layers(Gradients& gradients) {
  for (std::vector<float>& input : gradients.input) {
    for (std::size_t i = 0; i < input.size(); ++i) {
      input[i] *= i < input.size() / 4 ? 1.0F : 0.1F;
    }
  }
  for (std::size_t i = 0; i < gradients.mean.size(); ++i) {
    gradients.mean[i] *= i < gradients.mean.size() / 4 ? 1.0F : 0.1F;
  }
}

class EntropyAllReduce : public testing::TestWithParam<Algorithm> {};
INSTANTIATE_TEST_SUITE_P(Ways, EntropyAllReduce,
                         testing::Values(Algorithm::kDirect, Algorithm::kRing),
                         [](const testing::TestParamInfo<Algorithm>& info) {
                           return collective::algorithm_name(info.param);
                         });

TEST_P(EntropyAllReduce, AllRanksHaveTheSameBitsWithinAUnit) {
  for (const ChunkRule rule : {ChunkRule::kEqual, ChunkRule::kBalanced, ChunkRule::kStriped}) {
    SimulatedGroup group(entropy_group_of(4, rule));
    Gradients gradients(4, kEntropyCount, 1);
    scale_by_layers(gradients);
    EntropySteps steps(group, gradients, GetParam());
    for (int step = 0; step < 3; ++step) {
      steps.step({by_entropy()});
      EXPECT_LT(largest_error(gradients), 6.0 / 127);  // all values are below six
    }
    EXPECT_EQ(group.endings(0).back().report.contributors, 4U);
    EXPECT_EQ(group.endings(0).back().report.algorithm, GetParam());
  }
}

TEST_P(EntropyAllReduce, TinyGradientsAreSummedAsPreciselyAsOthers) {
  constexpr float kTiny = 1e-38F;
  SimulatedGroup group(entropy_group_of(3));
  Gradients gradients(3, 30'000, 1);
  for (std::vector<float>& input : gradients.input) {
    for (float& value : input) {
      value *= kTiny;
    }
  }
  for (auto& value : gradients.mean) {
    value *= kTiny;
  }
  EntropySteps steps(group, gradients, GetParam());
  steps.step({by_entropy()});
  EXPECT_LT(largest_error(gradients), 6.0 / 127 * static_cast<double>(kTiny));
}

// The codec works on floats, so larger doubles cannot be coded.
TEST_P(EntropyAllReduce, DoublesBeyondAFloatAreNanAtAllRanks) {
  constexpr std::size_t kDoubles = 5'000;
  SimulatedGroup group(entropy_group_of(3));
  std::vector<std::vector<double>> values(3, std::vector<double>(kDoubles, 1.0));
  values[1][7] = 1e39;
  collective::Operation operation = tolerant(kDoubles, by_entropy());
  operation.type = collective::DataType::kFloat64;
  operation.algorithm = GetParam();
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    operation.input = operation.output = values[rank].data();
    ASSERT_TRUE(group.submit(rank, operation).ok());
  }
  ASSERT_TRUE(group.run(3));
  for (const std::vector<double>& at_rank : values) {
    EXPECT_TRUE(std::all_of(at_rank.begin(), at_rank.end(),
                            [](double value) { return std::isnan(value); }));
  }
}

// All ranks round these values without error, so the sum is exact.
TEST_P(EntropyAllReduce, SumsOfWholeNumbersAreExact) {
  SimulatedGroup group(entropy_group_of(5));
  Gradients gradients(5, 30'000, 2);
  std::vector<float> sum(30'000);
  for (std::uint16_t rank = 0; rank < 5; ++rank) {
    for (std::size_t i = 0; i < sum.size(); ++i) {
      float& value = gradients.input[rank][i];
      value = std::clamp(std::nearbyint(8.0F * value), -127.0F, 127.0F);
      value = i == 77 ? 127.0F : value;  // the scale
      sum[i] += value;
    }
  }
  collective::Operation operation = tolerant(30'000, by_entropy());
  operation.op = collective::ReduceOp::kSum;
  operation.algorithm = GetParam();
  run_once(group, gradients, operation, 5);
  EXPECT_EQ(gradients.output[3], sum);
  expect_same_bits(gradients);
}

TEST_P(EntropyAllReduce, TablesAreNeverSentWhileAllGoesWell) {
  for (const ChunkRule rule : {ChunkRule::kEqual, ChunkRule::kStriped}) {
    SimulatedGroup group(entropy_group_of(4, rule));
    Gradients gradients(4, kEntropyCount, 3);
    scale_by_layers(gradients);
    EntropySteps steps(group, gradients, GetParam());
    steps.step({by_entropy(5)});
    steps.step({by_entropy(5)});
    const double first = steps.bits_of(1);
    for (int step = 0; step < 2; ++step) {
      steps.step({by_entropy(5)});
      EXPECT_EQ(steps.tables(), 0U);
    }
    EXPECT_LE(steps.bits_of(1), first * 1.01);
    EXPECT_GT(steps.bits_of(4), steps.bits_of(1));  // sums have larger values
    EXPECT_LT(steps.bits_of(4), 7.0);
  }
}

// A rank that uses another name for the tensor remembers something else. All its peers notice,
// which costs tables once and changes no value.
TEST_P(EntropyAllReduce, WhoRemembersSomethingElseIsNoticed) {
  SimulatedGroup group(entropy_group_of(3, ChunkRule::kBalanced));
  Gradients gradients(3, kEntropyCount, 4);
  EntropySteps steps(group, gradients, GetParam());
  const std::vector<Tolerance> alike = {by_entropy(1)};
  steps.step(alike);
  steps.step(alike);
  EXPECT_EQ(steps.tables(), 0U);
  steps.step({by_entropy(2), by_entropy(1), by_entropy(1)});
  EXPECT_GT(steps.tables(), 0U);
  EXPECT_LT(largest_error(gradients), 6.0 / 127);
  steps.step(alike);  // the first rank remembers an older step
  EXPECT_GT(steps.tables(), 0U);
  steps.step(alike);
  EXPECT_EQ(steps.tables(), 0U);
}

TEST_P(EntropyAllReduce, SurvivesLossAndLateRanks) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    SimulatedGroupOptions options = entropy_group_of(4);
    options.seed = seed;
    options.cut_share = 0.02;
    SimulatedGroup group(options);
    Gradients gradients(4, kEntropyCount, seed);
    for (std::uint16_t rank = 0; rank < 4; ++rank) {
      add_fault(group, up_link(rank), scenario::FaultKind::kLoss, 0.02);
      add_fault(group, down_link(rank), scenario::FaultKind::kLoss, 0.02);
    }
    collective::Operation operation = tolerant(kEntropyCount, by_entropy(3));
    operation.algorithm = GetParam();
    constexpr std::size_t kSteps = 3;
    for (std::size_t step = 0; step < kSteps; ++step) {
      for (std::uint16_t rank = 0; rank < 4; ++rank) {
        const base::Duration late = base::microseconds(rank == step ? 3000 : 0);
        group.submit_at(group.network().now() + late, rank, gradients.at(rank, operation));
      }
    }
    ASSERT_TRUE(group.run(4 * kSteps));
    for (std::uint16_t rank = 0; rank < 4; ++rank) {
      EXPECT_TRUE(group.endings(rank).back().status.ok());
    }
    expect_same_bits(gradients);
    EXPECT_LT(largest_error(gradients), 12.0 / 127) << "seed " << seed;
  }
}

// Random groups, repeated tensors with and without names, several at once, loss, and ranks that
// call late: all ranks must have the same bits of every tensor.
TEST(CodedSoak, ResultsAreTheSameAtAllRanks) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    base::RandomSequence random(seed);
    const auto ranks = static_cast<std::uint16_t>(2 + random.next_below(5));
    SimulatedGroupOptions options =
        entropy_group_of(ranks, static_cast<ChunkRule>(random.next_below(3)));
    options.seed = seed;
    options.cut_share = 0.05 * random.next_unit();
    SimulatedGroup group(options);
    for (std::uint16_t rank = 0; rank < ranks; ++rank) {
      add_fault(group, down_link(rank), scenario::FaultKind::kLoss, 0.05 * random.next_unit());
    }
    std::vector<Gradients> tensors;
    constexpr std::size_t kOperations = 12;
    for (std::size_t i = 0; i < kOperations; ++i) {
      tensors.emplace_back(ranks, 1 + 9'000 * (i % 4), seed * 100 + i);
    }
    for (std::size_t i = 0; i < kOperations; ++i) {
      Tolerance tolerance = by_entropy(i % 4, static_cast<std::uint8_t>(4 + 2 * (i % 4)));
      tolerance.predicts_scale = i % 2 == 0;
      collective::Operation operation = tolerant(1 + 9'000 * (i % 4), tolerance);
      operation.algorithm = i % 3 == 0 ? Algorithm::kRing : Algorithm::kDirect;
      for (std::uint16_t rank = 0; rank < ranks; ++rank) {
        const auto late = static_cast<std::int64_t>(i * 100 + random.next_below(80));
        group.submit_at(group.network().now() + base::microseconds(late), rank,
                        tensors[i].at(rank, operation));
      }
    }
    ASSERT_TRUE(group.run(ranks * kOperations)) << "seed " << seed;
    for (std::size_t i = 0; i < kOperations; ++i) {
      ASSERT_TRUE(group.endings(0)[i].status.ok()) << group.endings(0)[i].status.message();
      expect_same_bits(tensors[i]);
    }
  }
}

TEST_P(EntropyAllReduce, ErrorFeedbackMakesUpForRoundingAndClips) {
  for (const bool predicts : {false, true}) {
    SimulatedGroup group(entropy_group_of(3));
    Gradients gradients(3, 20'000, 5);
    EntropySteps steps(group, gradients, GetParam());
    Tolerance tolerance = by_entropy(9, 3);
    tolerance.predicts_scale = predicts;
    std::vector<double> total(20'000);
    constexpr int kSteps = 25;
    for (int step = 0; step < kSteps; ++step) {
      steps.step({tolerance});
      for (std::size_t i = 0; i < total.size(); ++i) {
        total[i] += gradients.output[0][i] / kSteps;
      }
    }
    double error = 0.0;
    double energy = 0.0;
    for (std::size_t i = 0; i < total.size(); ++i) {
      error += std::pow(total[i] - gradients.mean[i], 2);
      energy += std::pow(gradients.mean[i], 2);
    }
    EXPECT_LT(error, 0.002 * energy) << predicts;
  }
}

TEST_P(EntropyAllReduce, APredictedScaleClipsWhatHasGrown) {
  SimulatedGroup group(entropy_group_of(3));
  Gradients gradients(3, 20'000, 6);
  EntropySteps steps(group, gradients, GetParam());
  Tolerance tolerance = by_entropy(9);
  tolerance.predicts_scale = true;
  steps.step({tolerance});
  steps.step({tolerance});
  EXPECT_EQ(group.endings(1).back().report.entropy.clipped, 0U);
  gradients.input[1][50] = 100.0F;
  steps.step({tolerance});
  EXPECT_EQ(group.endings(1).back().report.entropy.clipped, 1U);
  EXPECT_LT(gradients.output[0][50], 10.0F);
  gradients.input[1][50] = 0.0F;
  steps.step({tolerance});  // the clipped rest is added now
  EXPECT_GT(gradients.output[0][50], 25.0F);
}

TEST_P(EntropyAllReduce, WhatIsNotFiniteIsNanEverywhereAndForgotten) {
  SimulatedGroup group(entropy_group_of(3));
  Gradients gradients(3, 20'000, 8);
  EntropySteps steps(group, gradients, GetParam());
  Tolerance tolerance = by_entropy(3);
  tolerance.predicts_scale = true;
  steps.step({tolerance});
  gradients.input[1][100] = INFINITY;
  steps.step({tolerance});
  EXPECT_TRUE(std::isnan(gradients.output[2][100]));
  gradients.input[1][100] = 1.0F;
  steps.step({tolerance});
  steps.step({tolerance});
  EXPECT_LT(largest_error(gradients), 1.0);
}

TEST_P(EntropyAllReduce, TinyTensorsZerosAndManyAtOnce) {
  SimulatedGroup group(entropy_group_of(4));
  std::vector<Gradients> tensors;
  for (std::size_t i = 0; i < 12; ++i) {
    tensors.emplace_back(4, 1 + 700 * i, 20 + i);
  }
  for (std::vector<float>& input : tensors[3].input) {
    std::fill(input.begin(), input.end(), 0.0F);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    collective::Operation operation = tolerant(1 + 700 * i, by_entropy(i % 3));
    operation.algorithm = GetParam();
    for (std::uint16_t rank = 0; rank < 4; ++rank) {
      ASSERT_TRUE(group.submit(rank, tensors[i].at(rank, operation)).ok());
    }
  }
  ASSERT_TRUE(group.run(4 * tensors.size()));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    ASSERT_TRUE(group.endings(0)[i].status.ok()) << group.endings(0)[i].status.message();
    expect_same_bits(tensors[i]);
    if (i != 3) {
      EXPECT_LT(largest_error(tensors[i]), 0.1);
    }
  }
  EXPECT_EQ(tensors[3].output[2], std::vector<float>(1 + 700 * 3));
}

TEST_P(EntropyAllReduce, ARankThatDiesIsNamed) {
  SimulatedGroup group(entropy_group_of(3));
  Gradients gradients(3, kEntropyCount, 9);
  collective::Operation operation = tolerant(kEntropyCount, by_entropy());
  operation.algorithm = GetParam();
  ASSERT_TRUE(group.submit(0, gradients.at(0, operation)).ok());
  ASSERT_TRUE(group.submit(1, gradients.at(1, operation)).ok());
  add_fault(group, up_link(2), scenario::FaultKind::kGray, 1.0);
  ASSERT_TRUE(group.run(2, base::seconds(20)));
  EXPECT_NE(group.endings(0).back().status.message().find("rank 2"), std::string::npos)
      << group.endings(0).back().status.message();
}

TEST(EntropyNumbers, WhatCannotBeCodedIsRefused) {
  Tolerance lossy = by_entropy();
  lossy.loss_bound_ppm = 1;
  EXPECT_NE(refusal_of(lossy, Algorithm::kDirect).find("arrive whole"), std::string::npos);
  EXPECT_NE(refusal_of(by_entropy(0, 17), Algorithm::kDirect).find("2 to 16"), std::string::npos);
  EXPECT_NE(refusal_of(by_entropy(), Algorithm::kTree).find("not tree"), std::string::npos);
}

}  // namespace
}  // namespace spillway::sim
