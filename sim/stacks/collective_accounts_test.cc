// SPDX-License-Identifier: Apache-2.0
//
// The accounting of tolerant all-reduces, in the simulated network. All ranks report the same
// contributors. With error feedback, cut, lost, late or dropped values come back exactly.
#include <gtest/gtest.h>

#include <cmath>

#include "codec/sample_data.h"
#include "sim/stacks/collective_tolerant_testing.h"

namespace spillway::sim {
namespace {

using collective::Extent;
using collective::Operation;
using collective::OperationReport;
using collective::ShardDelivery;

// One row per shard, with its own packet plan: a shard's contributors are then those of all its
// elements.
constexpr std::size_t kRow = 8192;

// Every rank starts a step when it has the one before, always with the same gradient. used()
// returns what all sums contain, residuals() what the ranks still owe.
class FeedbackTraining {
 public:
  FeedbackTraining(SimulatedGroup& group, std::uint16_t ranks, const Operation& operation,
                   std::uint64_t steps)
      : group_(group),
        ranks_(ranks),
        operation_(operation),
        steps_(steps),
        gradients_(ranks, operation.count, 3),
        outputs_(steps,
                 std::vector<std::vector<float>>(ranks, std::vector<float>(operation.count))),
        next_(ranks, 0) {
    group_.on_ending([this](std::uint16_t rank, const Ending& ending) {
      EXPECT_TRUE(ending.status.ok()) << ending.status.message();
      if (++next_[rank] < steps_) {
        submit(rank);
      }
    });
  }

  void run() {
    for (std::uint16_t rank = 0; rank < ranks_; ++rank) {
      submit(rank);
    }
    ASSERT_TRUE(group_.run(ranks_ * steps_, base::seconds(20)));
    group_.on_ending({});
  }

  // All ranks contribute zeros, so the sum is what they have kept.
  std::vector<double> residuals() {
    Operation ask = operation_;
    ask.op = collective::ReduceOp::kSum;
    ask.tolerance->precision = ask.tolerance->gather_precision = 32;
    ask.tolerance->loss_bound_ppm = 0;
    ask.tolerance->min_planes = 32;
    ask.tolerance->least_contributors = 0.0;
    const std::vector<float> zeros(operation_.count);
    std::vector<std::vector<float>> kept(ranks_, std::vector<float>(operation_.count));
    for (std::uint16_t rank = 0; rank < ranks_; ++rank) {
      EXPECT_TRUE(group_.submit(rank, on_buffers(ask, zeros.data(), kept[rank].data())).ok());
    }
    EXPECT_TRUE(group_.run(ranks_ * (steps_ + 1), base::seconds(20)));
    return {kept[0].begin(), kept[0].end()};
  }

  // Over all steps: the means times their numbers of contributors.
  std::vector<double> used() const {
    std::vector<double> sum(operation_.count);
    for (std::uint64_t step = 0; step < steps_; ++step) {
      for (const ShardDelivery& shard : report(0, step).shards) {
        for (std::size_t i = shard.extent.first; i < shard.extent.first + shard.extent.count; ++i) {
          sum[i] += double{outputs_[step][0][i]} * shard.contributors;
        }
      }
    }
    return sum;
  }

  void expect_nothing_lost() {
    const std::vector<double> in_sums = used();
    const std::vector<double> kept = residuals();
    double error = 0;
    double energy = 0;
    for (std::size_t i = 0; i < operation_.count; ++i) {
      const double all = double{gradients_.mean[i]} * ranks_ * static_cast<double>(steps_);
      error += std::pow(in_sums[i] + kept[i] - all, 2);
      energy += all * all;
    }
    EXPECT_LT(error / energy, 1e-10);
    double owed = 0;
    for (const double value : kept) {
      owed += value * value;
    }
    EXPECT_GT(owed / energy, 1e-9);  // or this test shows nothing
  }

  void expect_the_same_everywhere() const {
    for (std::uint64_t step = 0; step < steps_; ++step) {
      for (std::uint16_t rank = 1; rank < ranks_; ++rank) {
        ASSERT_EQ(outputs_[step][rank], outputs_[step][0]) << "step " << step;
        expect_alike(report(rank, step), report(0, step));
      }
    }
  }

  const OperationReport& report(std::uint16_t rank, std::uint64_t step) const {
    return group_.endings(rank)[step].report;
  }
  const std::vector<float>& output(std::uint64_t step) const { return outputs_[step][0]; }

 private:
  void submit(std::uint16_t rank) {
    EXPECT_TRUE(group_
                    .submit(rank, on_buffers(operation_, gradients_.input[rank].data(),
                                             outputs_[next_[rank]][rank].data()))
                    .ok());
  }

  static void expect_alike(const OperationReport& one, const OperationReport& other) {
    ASSERT_EQ(one.shards.size(), other.shards.size());
    for (std::size_t i = 0; i < one.shards.size(); ++i) {
      ASSERT_EQ(one.shards[i].contributors, other.shards[i].contributors);
      ASSERT_EQ(one.shards[i].owner, other.shards[i].owner);
      ASSERT_EQ(one.shards[i].extent.first, other.shards[i].extent.first);
    }
    ASSERT_EQ(one.absent.size(), other.absent.size());
    ASSERT_EQ(one.absent_elements(), other.absent_elements());
    ASSERT_EQ(one.contributors, other.contributors);
    ASSERT_EQ(one.empty_shards, other.empty_shards);
  }

  SimulatedGroup& group_;
  std::uint16_t ranks_;
  Operation operation_;
  std::uint64_t steps_;
  Gradients gradients_;
  std::vector<std::vector<std::vector<float>>> outputs_;  // by step and rank
  std::vector<std::uint64_t> next_;
};

TEST(Accounts, WhatIsCutOrLostComesBackExactly) {
  constexpr std::uint16_t kRanks = 4;
  SimulatedGroup group({.ranks = kRanks, .seed = 5, .cut_share = 0.3});
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
    add_fault(group, up_link(rank), scenario::FaultKind::kLoss, 0.1);
  }
  const Operation operation = tolerant(
      kRanks * kRow, {.gather_precision = 32, .loss_bound_ppm = 400'000, .feedback_tensor = 9});
  FeedbackTraining training(group, kRanks, operation, 20);
  training.run();
  std::uint64_t missing = 0;
  std::uint64_t trimmed = 0;
  for (std::uint64_t step = 0; step < 20; ++step) {
    missing += training.report(0, step).total().missing;
    trimmed += training.report(0, step).total().trimmed;
  }
  EXPECT_GT(missing, 0U);
  EXPECT_GT(trimmed, 0U);
  training.expect_the_same_everywhere();
  training.expect_nothing_lost();
}

TEST(Accounts, WhatIsLateOrDroppedComesBackExactlyAndIsInTheReport) {
  constexpr std::uint16_t kRanks = 5;
  constexpr std::uint64_t kSteps = 60;
  constexpr std::uint16_t kLate = 3;
  SimulatedGroup group({.ranks = kRanks, .rate = base::gigabits_per_second(1), .seed = 2});
  for (const std::string& link : {up_link(kLate), down_link(kLate)}) {
    add_fault(group, link, scenario::FaultKind::kDown, 1.0, base::Instant(base::milliseconds(20)),
              base::Instant(base::milliseconds(45)));
  }
  const Operation operation = tolerant(
      kRanks * kRow, {.gather_precision = 32, .feedback_tensor = 9, .least_contributors = 0.6});
  FeedbackTraining training(group, kRanks, operation, kSteps);
  training.run();
  unsigned without_one = 0;
  unsigned with_absent = 0;
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    const OperationReport& report = training.report(0, step);
    ASSERT_EQ(report.shards.size(), kRanks);
    without_one += report.contributors < kRanks ? 1 : 0;
    with_absent += report.absent.empty() ? 0 : 1;
    EXPECT_EQ(report.absent_elements(), report.empty_shards * kRow);
    for (const Extent& extent : report.absent) {
      for (std::size_t i = extent.first; i < extent.first + extent.count; ++i) {
        ASSERT_EQ(training.output(step)[i], 0.0F);
      }
    }
  }
  EXPECT_GT(without_one, 0U);
  EXPECT_GT(with_absent, 0U);
  training.expect_the_same_everywhere();
  training.expect_nothing_lost();
}

TEST(Accounts, TheMeanIsOverWhoCame) {
  constexpr std::uint16_t kRanks = 4;
  constexpr std::uint64_t kWarmUp = 20;
  SimulatedGroup group({.ranks = kRanks});
  const Operation operation =
      tolerant(kRanks * kRow, {.precision = 32, .gather_precision = 32, .least_contributors = 0.5});
  Gradients gradients(kRanks, operation.count, 7);
  for (std::uint64_t step = 0; step < kWarmUp; ++step) {
    run_once(group, gradients, operation, kRanks, step * kRanks);
  }
  // The last rank calls later than any other rank waits.
  for (std::uint16_t rank = 0; rank + 1 < kRanks; ++rank) {
    ASSERT_TRUE(group.submit(rank, gradients.at(rank, operation)).ok());
  }
  ASSERT_TRUE(group.run((kWarmUp + 1) * kRanks - 1));
  const OperationReport& report = group.endings(1).back().report;
  EXPECT_EQ(report.contributors, kRanks - 1);
  EXPECT_EQ(report.empty_shards, 1);
  for (const ShardDelivery& shard : report.shards) {
    for (std::size_t i = shard.extent.first; i < shard.extent.first + shard.extent.count; ++i) {
      const float mean =
          (gradients.input[0][i] + gradients.input[1][i] + gradients.input[2][i]) / 3;
      ASSERT_NEAR(gradients.output[1][i], shard.contributors > 0 ? mean : 0.0F, 1e-4);
    }
  }
  ASSERT_TRUE(group.submit(kRanks - 1, gradients.at(kRanks - 1, operation)).ok());
  ASSERT_TRUE(group.run((kWarmUp + 1) * kRanks));
  EXPECT_EQ(gradients.output[kRanks - 1], gradients.output[0]);
  EXPECT_EQ(group.endings(kRanks - 1).back().report.absent_elements(), kRow);
}

TEST(Accounts, ServersTellWorkersWhoIsIn) {
  constexpr std::uint16_t kWorkers = 3;
  constexpr std::uint64_t kWarmUp = 20;
  SimulatedGroup group({.ranks = kWorkers + 1, .servers = 1});
  const Operation operation = tolerant(
      kRow,
      {.precision = 32, .gather_precision = 32, .feedback_tensor = 4, .least_contributors = 0.5});
  Gradients gradients(kWorkers, kRow, 7);
  for (std::uint64_t step = 0; step < kWarmUp; ++step) {
    for (std::uint16_t rank = 0; rank < kWorkers; ++rank) {
      ASSERT_TRUE(group.submit(rank, gradients.at(rank, operation)).ok());
    }
    ASSERT_TRUE(group.run((step + 1) * (kWorkers + 1)));
  }
  for (std::uint16_t rank = 0; rank + 1 < kWorkers; ++rank) {
    ASSERT_TRUE(group.submit(rank, gradients.at(rank, operation)).ok());
  }
  ASSERT_TRUE(group.run((kWarmUp + 1) * (kWorkers + 1) - 1));
  EXPECT_EQ(group.endings(0).back().report.contributors, kWorkers - 1);
  ASSERT_TRUE(group.submit(kWorkers - 1, gradients.at(kWorkers - 1, operation)).ok());
  ASSERT_TRUE(group.run((kWarmUp + 1) * (kWorkers + 1)));
  EXPECT_EQ(group.endings(kWorkers - 1).back().report.contributors, kWorkers - 1);
  // The late part is in the next mean, so it counts twice.
  const std::uint64_t before = (kWarmUp + 1) * (kWorkers + 1);
  for (std::uint16_t rank = 0; rank < kWorkers; ++rank) {
    ASSERT_TRUE(group.submit(rank, gradients.at(rank, operation)).ok());
  }
  ASSERT_TRUE(group.run(before + kWorkers + 1));
  ASSERT_EQ(group.endings(0).back().report.contributors, kWorkers);
  for (std::size_t i = 0; i < kRow; ++i) {
    const float expected =
        (gradients.input[0][i] + gradients.input[1][i] + 2 * gradients.input[2][i]) / 3;
    ASSERT_NEAR(gradients.output[0][i], expected, 1e-4);
  }
}

}  // namespace
}  // namespace spillway::sim
