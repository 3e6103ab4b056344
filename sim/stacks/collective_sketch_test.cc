// SPDX-License-Identifier: Apache-2.0
//
// All-reduces of tensors that are mostly zero, folded by a sketch, in the simulated network.
#include <gtest/gtest.h>

#include <cmath>

#include "sim/stacks/collective_testing.h"

namespace spillway::sim {
namespace {

using collective::Algorithm;
using collective::Codec;
using collective::SketchDelivery;
using collective::Tolerance;

constexpr std::size_t kSketchRows = 3'000;
constexpr std::size_t kSketchWidth = 16;
constexpr std::size_t kSketchValues = kSketchRows * kSketchWidth;

Tolerance by_sketch(std::uint64_t tensor, Codec codec = Codec::kSketch) {
  return {.codec = codec, .precision = 8, .loss_bound_ppm = 0, .feedback_tensor = tensor};
}

// Whole numbers of up to 127, which 8 bits hold without rounding.
float number_from(base::RandomSequence& random) {
  return static_cast<float>(1 + random.next_below(126)) *
         (random.next_below(2) == 0 ? 1.0F : -1.0F);
}

// Rows of an embedding: most nonzero rows occur in every step; each rank adds some new ones.
void draw_rows(Gradients& gradients, std::uint64_t step, std::size_t new_rows = 6) {
  for (std::size_t rank = 0; rank < gradients.input.size(); ++rank) {
    std::vector<float>& input = gradients.input[rank];
    std::fill(input.begin(), input.end(), 0.0F);
    base::RandomSequence random(1 + 1000 * step + rank);
    const auto fill_row = [&](std::size_t row) {
      for (std::size_t i = 0; i < kSketchWidth; ++i) {
        input[row * kSketchWidth + i] = number_from(random);
      }
    };
    for (std::size_t row = 0; row < kSketchRows; row += 20) {
      fill_row(row);
    }
    for (std::size_t i = 0; i < new_rows; ++i) {
      fill_row(random.next_below(kSketchRows));
    }
    input[0] = 127.0F;  // the scale
  }
  for (std::size_t i = 0; i < kSketchValues; ++i) {
    double sum = 0.0;
    for (const std::vector<float>& input : gradients.input) {
      sum += static_cast<double>(input[i]);
    }
    gradients.mean[i] = static_cast<float>(sum / static_cast<double>(gradients.input.size()));
  }
}

void scale_by(float factor, std::vector<float>& values) {
  for (float& value : values) {
    value *= factor;
  }
}

const SketchDelivery& delivery_of(SimulatedGroup& group, std::uint16_t rank = 0) {
  return group.endings(rank).back().report.entropy.sketch;
}

class SketchAllReduce : public testing::TestWithParam<Algorithm> {};
INSTANTIATE_TEST_SUITE_P(Ways, SketchAllReduce,
                         testing::Values(Algorithm::kDirect, Algorithm::kRing),
                         [](const testing::TestParamInfo<Algorithm>& info) {
                           return collective::algorithm_name(info.param);
                         });

TEST_P(SketchAllReduce, SumsAreThoseOfCodedNumbersInFewerBytes) {
  SimulatedGroup group(entropy_group_of(4));
  Gradients gradients(4, kSketchValues, 1);
  EntropySteps steps(group, gradients, GetParam());
  std::uint64_t sketched = 0;
  std::uint64_t coded = 0;
  for (std::uint64_t step = 0; step < 8; ++step) {
    draw_rows(gradients, step);
    steps.step({by_sketch(5)});
    const std::vector<float> output = gradients.output[2];
    const SketchDelivery delivery = delivery_of(group);
    EXPECT_EQ(delivery.predicted == kSketchValues, step < 2);
    EXPECT_EQ(delivery.unrecovered, 0U);
    EXPECT_LT(largest_error(gradients), 1e-4);
    sketched += step > 3 ? steps.bytes() : 0;
    if (step > 2) {
      EXPECT_LT(delivery.predicted, kSketchValues / 10);
      EXPECT_GT(delivery.misses, 100U);
    }
    steps.step({by_sketch(6, Codec::kEntropy)});
    EXPECT_EQ(gradients.output[2], output);
    EXPECT_EQ(delivery_of(group).predicted, 0U);
    coded += step > 3 ? steps.bytes() : 0;
  }
  EXPECT_LT(sketched, coded);
}

// The values are denormal; the reciprocal of their unit is not a float.
TEST_P(SketchAllReduce, TinyGradientsAreSummedAsPreciselyAsOthers) {
  constexpr float kTiny = 1e-41F;
  SimulatedGroup group(entropy_group_of(3));
  Gradients gradients(3, kSketchValues, 1);
  EntropySteps steps(group, gradients, GetParam());
  for (std::uint64_t step = 0; step < 4; ++step) {
    draw_rows(gradients, step);
    for (std::vector<float>& input : gradients.input) {
      scale_by(kTiny, input);
    }
    scale_by(kTiny, gradients.mean);
    steps.step({by_sketch(5)});
    EXPECT_LT(largest_error(gradients), 1e-3 * static_cast<double>(kTiny)) << "step " << step;
  }
  EXPECT_LT(delivery_of(group).predicted, kSketchValues / 10) << "all values were sent densely";
  EXPECT_EQ(delivery_of(group).unrecovered, 0U);
}

TEST_P(SketchAllReduce, WhatItHasNoRoomForComesInTheNextStep) {
  SimulatedGroup group(entropy_group_of(3));
  Gradients gradients(3, kSketchValues, 1);
  EntropySteps steps(group, gradients, GetParam());
  for (std::uint64_t step = 0; step < 4; ++step) {
    draw_rows(gradients, step, 1);
    steps.step({by_sketch(5)});
  }
  draw_rows(gradients, 4, 400);
  steps.step({by_sketch(5)});
  EXPECT_GT(delivery_of(group).unrecovered, 1000U);
  std::vector<float> wanted = gradients.mean;
  const std::vector<float> first = gradients.output[0];
  for (std::vector<float>& input : gradients.input) {
    std::fill(input.begin() + 1, input.end(), 0.0F);
  }
  wanted[0] += 127.0F;
  steps.step({by_sketch(5)});
  for (std::size_t i = 0; i < kSketchValues; ++i) {
    ASSERT_NEAR(first[i] + gradients.output[0][i], wanted[i], 2e-3) << i;
  }
}

// A rank that uses another name for the tensor predicts something else. All ranks notice and send
// this step densely.
TEST_P(SketchAllReduce, WhoRemembersSomethingElseMakesTheStepDense) {
  SimulatedGroup group(entropy_group_of(3));
  Gradients gradients(3, kSketchValues, 4);
  EntropySteps steps(group, gradients, GetParam());
  const std::vector<Tolerance> alike = {by_sketch(1)};
  const auto step_of = [&](const std::vector<Tolerance>& tolerances, std::uint64_t step) {
    draw_rows(gradients, step);
    steps.step(tolerances);
    EXPECT_LT(largest_error(gradients), 1e-4);
  };
  for (std::uint64_t step = 0; step < 3; ++step) {
    step_of(alike, step);
  }
  EXPECT_LT(delivery_of(group).predicted, kSketchValues / 10);
  step_of({by_sketch(2), by_sketch(1), by_sketch(1)}, 3);
  EXPECT_EQ(delivery_of(group, 1).predicted, kSketchValues);
  step_of(alike, 4);  // the first rank remembers an older step
  EXPECT_EQ(delivery_of(group, 2).predicted, kSketchValues);
  step_of(alike, 5);
  step_of(alike, 6);
  EXPECT_LT(delivery_of(group, 2).predicted, kSketchValues / 10);
}

TEST_P(SketchAllReduce, TensorsWithoutANameAndWithoutZerosGoDensely) {
  SimulatedGroup group(entropy_group_of(3));
  Gradients gradients(3, 20'000, 5);
  EntropySteps steps(group, gradients, GetParam());
  for (const std::uint64_t tensor : {0, 0, 7, 7, 7}) {
    steps.step({by_sketch(tensor)});
    EXPECT_EQ(delivery_of(group).predicted, 20'000U);
    EXPECT_LT(largest_error(gradients), 6.0 / 127);
  }
}

TEST_P(SketchAllReduce, WhatIsNotFiniteIsNanEverywhereAndTeachesNothing) {
  SimulatedGroup group(entropy_group_of(3));
  Gradients gradients(3, kSketchValues, 6);
  EntropySteps steps(group, gradients, GetParam());
  for (std::uint64_t step = 0; step < 3; ++step) {
    draw_rows(gradients, step);
    steps.step({by_sketch(3)});
  }
  draw_rows(gradients, 3);
  gradients.input[1][100] = INFINITY;
  steps.step({by_sketch(3)});
  EXPECT_TRUE(std::isnan(gradients.output[2][0]));
  const std::uint64_t predicted = delivery_of(group).predicted;
  EXPECT_LT(predicted, kSketchValues / 10);
  draw_rows(gradients, 4);
  steps.step({by_sketch(3)});
  EXPECT_EQ(delivery_of(group).predicted, predicted);
  EXPECT_LT(largest_error(gradients), 1e-4);
}

TEST_P(SketchAllReduce, SurvivesLossAndLateRanks) {
  SimulatedGroupOptions options = entropy_group_of(4);
  options.cut_share = 0.02;
  SimulatedGroup group(options);
  for (std::uint16_t rank = 0; rank < 4; ++rank) {
    add_fault(group, up_link(rank), scenario::FaultKind::kLoss, 0.02);
    add_fault(group, down_link(rank), scenario::FaultKind::kLoss, 0.02);
  }
  constexpr std::size_t kSteps = 5;
  std::vector<Gradients> gradients;
  for (std::size_t step = 0; step < kSteps; ++step) {
    draw_rows(gradients.emplace_back(4, kSketchValues, step), step);
  }
  for (std::size_t step = 0; step < kSteps; ++step) {
    collective::Operation operation = tolerant(kSketchValues, by_sketch(3));
    operation.algorithm = GetParam();
    for (std::uint16_t rank = 0; rank < 4; ++rank) {
      const base::Duration late = base::microseconds(rank == step ? 3000 : 0);
      group.submit_at(
          group.network().now() + base::milliseconds(static_cast<std::int64_t>(20 * step)) + late,
          rank, gradients[step].at(rank, operation));
    }
  }
  ASSERT_TRUE(group.run(4 * kSteps));
  for (std::size_t step = 0; step < kSteps; ++step) {
    ASSERT_TRUE(group.endings(0)[step].status.ok()) << group.endings(0)[step].status.message();
    expect_same_bits(gradients[step]);
    EXPECT_LT(largest_error(gradients[step]), 1e-4);
  }
  EXPECT_LT(delivery_of(group).predicted, kSketchValues / 10);
}

TEST_P(SketchAllReduce, ARankThatDiesIsNamed) {
  SimulatedGroup group(entropy_group_of(3));
  Gradients gradients(3, kSketchValues, 9);
  EntropySteps steps(group, gradients, GetParam());
  for (std::uint64_t step = 0; step < 3; ++step) {
    draw_rows(gradients, step);
    steps.step({by_sketch(3)});
  }
  collective::Operation operation = tolerant(kSketchValues, by_sketch(3));
  operation.algorithm = GetParam();
  ASSERT_TRUE(group.submit(0, gradients.at(0, operation)).ok());
  ASSERT_TRUE(group.submit(1, gradients.at(1, operation)).ok());
  add_fault(group, up_link(2), scenario::FaultKind::kGray, 1.0);
  ASSERT_TRUE(group.run(11, base::seconds(20)));
  EXPECT_NE(group.endings(0).back().status.message().find("rank 2"), std::string::npos)
      << group.endings(0).back().status.message();
}

TEST(SketchedNumbers, WhatCannotBeSketchedIsRefused) {
  Tolerance lossy = by_sketch(1);
  lossy.loss_bound_ppm = 1;
  EXPECT_NE(refusal_of(lossy, Algorithm::kDirect).find("arrive whole"), std::string::npos);
  EXPECT_NE(refusal_of(by_sketch(1), Algorithm::kTree).find("direct or ring, not tree"),
            std::string::npos);
}

}  // namespace
}  // namespace spillway::sim
