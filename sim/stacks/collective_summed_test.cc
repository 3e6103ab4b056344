// SPDX-License-Identifier: Apache-2.0
//
// All-reduces by sums, with and without switches that add.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "sim/stacks/collective_testing.h"

namespace spillway::sim {
namespace {

using collective::Codec;
using collective::Tolerance;

constexpr std::size_t kSummedValues = 60'000;

Tolerance levels(std::uint8_t bits = 4) {
  return {.codec = Codec::kLevels, .precision = bits, .loss_bound_ppm = 0};
}
Tolerance blocks() {
  return {.codec = Codec::kBlocks, .loss_bound_ppm = 0};
}

SimulatedGroupOptions group_of(std::uint16_t ranks, const std::string& aggregate = "") {
  SimulatedGroupOptions options;
  options.ranks = ranks;
  options.scenario = "topology one-switch hosts=" + std::to_string(ranks) + " rate=10gbit\n";
  if (!aggregate.empty()) {
    options.scenario += "aggregate " + aggregate + "\n";
  }
  return options;
}

// Runs one operation at all ranks, which must end well.
void all_reduce(SimulatedGroup& group, Gradients& gradients, const collective::Operation& operation,
                std::size_t servers = 0) {
  const auto ranks = static_cast<std::uint16_t>(gradients.input.size());
  const std::size_t before = group.endings(0).size();
  for (std::uint16_t rank = 0; rank < ranks; ++rank) {
    ASSERT_TRUE(group.submit(rank, gradients.at(rank, operation)).ok());
  }
  ASSERT_TRUE(group.run((before + 1) * (ranks + servers))) << "it hangs";
  for (std::uint16_t rank = 0; rank < ranks; ++rank) {
    const Ending& ending = group.endings(rank).back();
    ASSERT_TRUE(ending.status.ok()) << ending.status.message();
    ASSERT_EQ(0, std::memcmp(gradients.output[rank].data(), gradients.output[0].data(),
                             operation.count * sizeof(float)))
        << "rank " << rank << " has other bits";
  }
}

double error_of(const Gradients& gradients) {
  double error = 0.0;
  double energy = 0.0;
  for (std::size_t i = 0; i < gradients.mean.size(); ++i) {
    error += std::pow(gradients.output[0][i] - gradients.mean[i], 2);
    energy += std::pow(gradients.mean[i], 2);
  }
  return error / energy;
}

std::uint64_t added(const SimulatedGroup& group) {
  std::uint64_t adds = 0;
  for (const AdderTotals& adder : const_cast<SimulatedGroup&>(group).network().adders()) {
    adds += adder.counters.outcomes[SPILLWAY_SUM_DID_ADD] +
            adder.counters.outcomes[SPILLWAY_SUM_DID_EMIT];
  }
  return adds;
}

TEST(SummedAllReduce, WithoutASwitchOwnersAdd) {
  for (const Tolerance& tolerance : {blocks(), levels(8), levels(4), levels(2)}) {
    SimulatedGroup group(group_of(4));
    Gradients gradients(4, kSummedValues, 1);
    all_reduce(group, gradients, tolerant(kSummedValues, tolerance));
    const double worst = tolerance.codec == Codec::kBlocks ? 1e-12
                         : tolerance.precision == 8        ? 1e-3
                         : tolerance.precision == 4        ? 0.02
                                                           : 0.5;
    EXPECT_LT(error_of(gradients), worst) << "precision " << unsigned{tolerance.precision};
    EXPECT_EQ(group.endings(0).back().report.contributors, 4U);
  }
}

TEST(SummedAllReduce, ASwitchGivesTheSameBits) {
  Gradients without(4, kSummedValues, 2);
  Gradients with(4, kSummedValues, 2);
  SimulatedGroup plain(group_of(4));
  SimulatedGroup adding(group_of(4, "slots=4096"));
  all_reduce(plain, without, tolerant(kSummedValues, levels()));
  all_reduce(adding, with, tolerant(kSummedValues, levels()));
  EXPECT_EQ(without.output[3], with.output[3]);
  EXPECT_GT(added(adding), 0U);
  EXPECT_EQ(added(plain), 0U);
}

TEST(SummedAllReduce, ASwitchSavesOwnersTheirCopies) {
  std::vector<std::uint64_t> sent;
  for (const char* aggregate : {"", "slots=8192"}) {
    SimulatedGroup group(group_of(8, aggregate));
    Gradients gradients(8, 400'000, 3);
    for (int step = 0; step < 3; ++step) {
      all_reduce(group, gradients, tolerant(400'000, levels()));
    }
    sent.push_back(group.stack(0).endpoint().counters().sums_sent);
  }
  // Seven parts and one result instead of seven parts and seven results.
  EXPECT_NEAR(static_cast<double>(sent[1]) / static_cast<double>(sent[0]), 8.0 / 14.0, 0.1);
}

TEST(SummedAllReduce, SurvivesLossWithScarceSlots) {
  for (const char* policy : {"static", "first-come", "preemptive"}) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      SimulatedGroupOptions options = group_of(5, std::string("slots=16 policy=") + policy);
      options.seed = seed;
      SimulatedGroup group(options);
      for (std::uint16_t rank = 0; rank < 5; ++rank) {
        const std::string host = "host" + std::to_string(rank);
        add_fault(group, host + "->switch0", scenario::FaultKind::kLoss, 0.02);
        add_fault(group, "switch0->" + host, scenario::FaultKind::kLoss, 0.02);
      }
      Gradients gradients(5, kSummedValues, seed);
      all_reduce(group, gradients, tolerant(kSummedValues, blocks()));
      EXPECT_LT(error_of(gradients), 1e-12) << policy << " seed " << seed;
    }
  }
}

TEST(SummedAllReduce, ASwitchThatForgetsCostsNothingButTime) {
  SimulatedGroup group(group_of(4, "slots=64"));
  for (int i = 1; i < 40; ++i) {
    scenario::Fault fault;
    fault.kind = scenario::FaultKind::kRestart;
    fault.switch_name = "switch0";
    fault.from = base::Instant() + base::microseconds(20 * i);
    ASSERT_TRUE(group.network().add_fault(fault).ok());
  }
  Gradients gradients(4, kSummedValues, 5);
  all_reduce(group, gradients, tolerant(kSummedValues, blocks()));
  EXPECT_LT(error_of(gradients), 1e-12);
}

TEST(SummedAllReduce, ServersOwnTheSums) {
  for (const char* aggregate : {"", "slots=4096"}) {
    SimulatedGroupOptions options = group_of(6, aggregate);
    options.servers = 2;
    SimulatedGroup group(options);
    Gradients gradients(4, kSummedValues, 6);
    all_reduce(group, gradients, tolerant(kSummedValues, levels(8)), 2);
    EXPECT_LT(error_of(gradients), 1e-3);
  }
}

TEST(SummedAllReduce, ErrorFeedbackMakesUpForRounding) {
  SimulatedGroup group(group_of(4, "slots=4096"));
  Gradients gradients(4, 20'000, 7);
  Tolerance tolerance = levels(2);
  tolerance.feedback_tensor = 9;
  for (const bool predicts : {false, true}) {
    tolerance.predicts_scale = predicts;
    std::vector<double> total(20'000);
    constexpr int kSteps = 20;
    for (int step = 0; step < kSteps; ++step) {
      all_reduce(group, gradients, tolerant(20'000, tolerance));
      for (std::size_t i = 0; i < total.size(); ++i) {
        total[i] += gradients.output[0][i];
      }
    }
    for (std::size_t i = 0; i < total.size(); ++i) {
      gradients.output[0][i] = static_cast<float>(total[i] / kSteps);
    }
    EXPECT_LT(error_of(gradients), 0.01) << "predicts " << predicts;
  }
}

TEST(SummedAllReduce, RowsThatAreNotFiniteAreNanEverywhere) {
  for (Tolerance tolerance : {levels(), blocks()}) {
    SimulatedGroup group(group_of(3, "slots=512"));
    Gradients gradients(3, 20'000, 8);
    tolerance.feedback_tensor = 3;
    tolerance.predicts_scale = true;
    all_reduce(group, gradients, tolerant(20'000, tolerance));
    gradients.input[1][100] = INFINITY;
    all_reduce(group, gradients, tolerant(20'000, tolerance));
    EXPECT_TRUE(std::isnan(gradients.output[2][100]));
    EXPECT_TRUE(std::isfinite(gradients.output[2][19'000]));
    gradients.input[1][100] = 1.0F;
    all_reduce(group, gradients, tolerant(20'000, tolerance));
    EXPECT_TRUE(std::isfinite(gradients.output[2][100]));
  }
}

// The second call comes before it is known that the first has no scale to predict from.
TEST(SummedAllReduce, APredictionThatTurnsOutToBeNoneWaitsForTheAgreement) {
  SimulatedGroup group(group_of(3, "slots=512"));
  Gradients zeros(3, 5'000, 8);
  for (std::vector<float>& input : zeros.input) {
    std::fill(input.begin(), input.end(), 0.0F);
  }
  Gradients gradients(3, 5'000, 9);
  Tolerance tolerance = blocks();
  tolerance.feedback_tensor = 3;
  tolerance.predicts_scale = true;
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(group.submit(rank, zeros.at(rank, tolerant(5'000, tolerance))).ok());
    ASSERT_TRUE(group.submit(rank, gradients.at(rank, tolerant(5'000, tolerance))).ok());
  }
  ASSERT_TRUE(group.run(6)) << "it hangs";
  EXPECT_LT(error_of(gradients), 1e-12);
}

TEST(SummedAllReduce, TinyTensorsAndManyAtOnce) {
  SimulatedGroup group(group_of(4, "slots=64"));
  std::vector<Gradients> tensors;
  for (std::size_t i = 0; i < 12; ++i) {
    tensors.emplace_back(4, 1 + 700 * i, 20 + i);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    for (std::uint16_t rank = 0; rank < 4; ++rank) {
      ASSERT_TRUE(group.submit(rank, tensors[i].at(rank, tolerant(1 + 700 * i, blocks()))).ok());
    }
  }
  ASSERT_TRUE(group.run(4 * tensors.size()));
  for (const Gradients& gradients : tensors) {
    EXPECT_LT(error_of(gradients), 1e-12);
    EXPECT_EQ(gradients.output[3], gradients.output[0]);
  }
}

TEST(SummedAllReduce, ARankThatDiesIsNamed) {
  SimulatedGroup group(group_of(3, "slots=64"));
  Gradients gradients(3, kSummedValues, 9);
  const collective::Operation operation = tolerant(kSummedValues, levels());
  ASSERT_TRUE(group.submit(0, gradients.at(0, operation)).ok());
  ASSERT_TRUE(group.submit(1, gradients.at(1, operation)).ok());
  add_fault(group, "host2->switch0", scenario::FaultKind::kGray, 1.0);
  ASSERT_TRUE(group.run(2, base::seconds(20)));
  EXPECT_NE(group.endings(0).back().status.message().find("rank 2"), std::string::npos)
      << group.endings(0).back().status.message();
}

TEST(SummedAllReduce, WhatCannotBeAddedIsRefused) {
  SimulatedGroup group(group_of(3));
  Gradients gradients(3, 100, 10);
  collective::Operation operation = tolerant(100, {});
  operation.algorithm = collective::Algorithm::kSwitch;
  EXPECT_NE(group.submit(0, gradients.at(0, operation)).message().find("levels or blocks"),
            std::string::npos);
  operation = tolerant(100, levels(5));
  EXPECT_NE(group.submit(0, gradients.at(0, operation)).message().find("2, 3, 4 and 8"),
            std::string::npos);
}

}  // namespace
}  // namespace spillway::sim
