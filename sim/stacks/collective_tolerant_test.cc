// SPDX-License-Identifier: Apache-2.0
//
// Tolerant all-reduces in the simulated network: lost, trimmed or late data costs a little
// accuracy, but the replicas always agree.
#include <gtest/gtest.h>

#include <cmath>
#include <span>

#include "codec/sample_data.h"
#include "sim/stacks/collective_testing.h"

namespace spillway::sim {
namespace {

// ------------------------------------------------------------------ loss

using collective::DataType;
using collective::Operation;
using collective::ReduceOp;

TEST(Tolerant, WithoutLossTheMeanIsAsGoodAsThePrecision) {
  for (const std::uint8_t precision : {8, 16, 32}) {
    SimulatedGroup group({.ranks = 4});
    Gradients gradients(4, 100'000, 1);
    run_once(group, gradients,
             tolerant(100'000, {.precision = precision, .gather_precision = precision}), 4);
    const double error = codec::nmse(gradients.output[0], gradients.mean);
    EXPECT_LT(error, precision == 8 ? 1e-3 : 1e-6) << int{precision};
    for (const std::vector<float>& output : gradients.output) {
      EXPECT_EQ(output, gradients.output[0]);
    }
  }
}

TEST(Tolerant, ReplicasAreIdenticalWhateverIsLost) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    SimulatedGroup group({.ranks = 5, .seed = seed});
    for (std::uint16_t rank = 0; rank < 5; ++rank) {
      add_fault(group, up_link(rank), scenario::FaultKind::kLoss, 0.05);
    }
    Gradients gradients(5, 60'000, seed);
    run_once(group, gradients, tolerant(60'000, {.loss_bound_ppm = 100'000}), 5);
    for (const std::vector<float>& output : gradients.output) {
      ASSERT_EQ(output, gradients.output[0]);
    }
    EXPECT_LT(codec::nmse(gradients.output[0], gradients.mean), 0.05);
    std::uint64_t missing = 0;
    for (std::uint16_t rank = 0; rank < 5; ++rank) {
      missing += group.endings(rank).back().report.total().missing;
    }
    EXPECT_GT(missing, 0U);  // or this test shows nothing
  }
}

TEST(Tolerant, HalfPrecisionTensorsAndSumsWork) {
  SimulatedGroup group({.ranks = 3});
  constexpr std::size_t kCount = 10'000;
  Operation operation = tolerant(kCount);
  operation.type = DataType::kBfloat16;
  operation.op = ReduceOp::kSum;
  std::vector<std::uint16_t> ones(kCount, 0x3F80);
  std::vector<std::vector<std::uint16_t>> output(3, std::vector<std::uint16_t>(kCount));
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(group.submit(rank, on_buffers(operation, ones.data(), output[rank].data())).ok());
  }
  ASSERT_TRUE(group.run(3));
  for (const std::uint16_t value : output[1]) {
    ASSERT_NEAR(value, 0x4040, 1);  // 3.0, give or take the last bit
  }
}

// The error of the average over many steps: errors of single steps are independent, so what remains
// is bias.
double bias_of(double uniform_loss, double loss_of_first, double cut_share) {
  constexpr std::uint16_t kRanks = 4;
  constexpr std::size_t kCount = 4096;
  constexpr int kSteps = 1000;
  SimulatedGroup group({.ranks = kRanks, .seed = 11, .cut_share = cut_share});
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
    const double loss = rank == 0 ? std::max(loss_of_first, uniform_loss) : uniform_loss;
    if (loss > 0) {
      add_fault(group, up_link(rank), scenario::FaultKind::kLoss, loss);
    }
  }
  Gradients gradients(kRanks, kCount, 5);
  const Operation operation = tolerant(kCount, {.gather_precision = 32, .loss_bound_ppm = 400'000});
  std::vector<double> average(kCount);
  for (int step = 0; step < kSteps; ++step) {
    run_once(group, gradients, operation, kRanks, static_cast<std::size_t>(step) * kRanks);
    for (std::size_t i = 0; i < kCount; ++i) {
      average[i] += gradients.output[0][i] / kSteps;
    }
  }
  double error = 0;
  double energy = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    error += std::pow(average[i] - gradients.mean[i], 2);
    energy += std::pow(gradients.mean[i], 2);
  }
  return std::sqrt(error / energy);
}

TEST(Tolerant, TheMeanIsUnbiasedUnderLossAndTrimming) {
  EXPECT_LT(bias_of(0.10, 0.0, 0.5), 0.01);
}

TEST(Tolerant, TheMeanIsUnbiasedWhenAllLossFallsOnOneSender) {
  EXPECT_LT(bias_of(0.0, 0.40, 0.5), 0.01);
}

TEST(Tolerant, ErrorFeedbackDelaysWhatCodingLeavesOut) {
  constexpr std::uint16_t kRanks = 2;
  constexpr std::size_t kCount = 2048;
  const auto error_after = [&](std::uint64_t tensor) {
    SimulatedGroup group({.ranks = kRanks});
    Gradients gradients(kRanks, kCount, 5, 0.1);
    const Operation operation =
        tolerant(kCount, {.precision = 2, .gather_precision = 32, .feedback_tensor = tensor});
    std::vector<float> sum(kCount);
    constexpr int kSteps = 20;
    for (int step = 0; step < kSteps; ++step) {
      run_once(group, gradients, operation, kRanks, static_cast<std::size_t>(step) * kRanks);
      for (std::size_t i = 0; i < kCount; ++i) {
        sum[i] += gradients.output[0][i] / kSteps;
      }
    }
    return codec::nmse(sum, gradients.mean);
  };
  const double without = error_after(0);
  const double with = error_after(7);
  EXPECT_LT(with, without / 2);
}

TEST(Tolerant, RanksThatHaveDecidedMayLeave) {
  constexpr std::uint16_t kRanks = 4;
  constexpr std::size_t kCount = 5'000;
  Gradients gradients(kRanks, kCount, 1);
  const Operation operation = tolerant(kCount, {.least_contributors = 0.75});
  // Each rank in turn coordinates the last step.
  for (std::uint64_t steps = 9; steps < 9 + kRanks; ++steps) {
    SimulatedGroup group({.ranks = kRanks, .rate = base::gigabits_per_second(1)});
    std::vector<std::uint64_t> next(kRanks, 0);
    std::function<void(std::uint16_t)> leave_when_idle = [&](std::uint16_t rank) {
      if (group.stack(rank).engine().is_idle()) {
        group.stack(rank).leave();
        group.network().wake(rank);
        return;
      }
      group.network().at(group.network().now() + base::microseconds(1),
                         [&leave_when_idle, rank](base::Instant) { leave_when_idle(rank); });
    };
    group.on_ending([&](std::uint16_t rank, const Ending& ending) {
      EXPECT_TRUE(ending.status.ok()) << ending.status.message();
      if (++next[rank] < steps) {
        static_cast<void>(group.submit(rank, gradients.at(rank, operation)));
      } else {
        leave_when_idle(rank);
      }
    });
    for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
      ASSERT_TRUE(group.submit(rank, gradients.at(rank, operation)).ok());
    }
    EXPECT_TRUE(group.run(kRanks * steps, base::seconds(20)));
  }
}

// Ranks that own nothing of a small tensor do not wait for its late owner either.
TEST(Tolerant, ALateOwnerOfASmallTensorIsLeftBehind) {
  constexpr std::uint16_t kRanks = 3;
  constexpr std::uint64_t kSteps = 31;  // the last one's coordinators are ranks 1 and 2
  const Operation operation = tolerant(1, {.least_contributors = 0.5});
  Gradients gradients(kRanks, 1, 1);
  SimulatedGroup group({.ranks = kRanks});
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    run_once(group, gradients, operation, kRanks, step * kRanks);
  }
  ASSERT_EQ(group.endings(0).back().report.shards.at(0).owner, 0);
  const base::Instant late = group.network().now() + base::milliseconds(500);
  ASSERT_TRUE(group.submit(1, gradients.at(1, operation)).ok());
  ASSERT_TRUE(group.submit(2, gradients.at(2, operation)).ok());
  group.submit_at(late, 0, gradients.at(0, operation));
  ASSERT_TRUE(group.run(kRanks * kSteps + 2, base::seconds(5)));
  EXPECT_LT(group.network().now(), late);
  ASSERT_TRUE(group.run(kRanks * (kSteps + 1), base::seconds(5)));
  EXPECT_TRUE(group.endings(1).back().report.peers[0].late);
}

// A step in which nobody contributed in time says nothing about how long contributions take.
TEST(Tolerant, AStepWithoutContributionsTeachesNoPace) {
  constexpr std::uint16_t kRanks = 2;
  constexpr std::size_t kCount = 6'000;
  constexpr std::uint64_t kUsual = 12;
  constexpr std::uint64_t kLate = 40;  // more than a pace remembers
  const Operation operation = tolerant(kCount, {.least_contributors = 0.1});
  Gradients gradients(kRanks, kCount, 1);
  SimulatedGroup group({.ranks = kRanks});
  std::uint64_t steps = 0;
  for (; steps < kUsual; ++steps) {
    run_once(group, gradients, operation, kRanks, steps * kRanks);
  }
  for (; steps < kUsual + kLate; ++steps) {
    ASSERT_TRUE(group.submit(0, gradients.at(0, operation)).ok());
    group.submit_at(group.network().now() + base::milliseconds(50), 1, gradients.at(1, operation));
    ASSERT_TRUE(group.run((steps + 1) * kRanks, base::seconds(5)));
  }
  run_once(group, gradients, operation, kRanks, steps++ * kRanks);  // what was late is caught up
  run_once(group, gradients, operation, kRanks, steps * kRanks);
  EXPECT_EQ(group.endings(0).back().report.contributors, kRanks);
}

TEST(Tolerant, ALateRankIsLeftBehindAndCatchesUp) {
  constexpr std::uint16_t kRanks = 8;
  constexpr std::size_t kCount = 200'000;
  constexpr std::uint64_t kSteps = 60;
  const base::Instant pause_from(base::milliseconds(100));
  const base::Instant pause_until(base::milliseconds(300));
  Gradients gradients(kRanks, kCount, 1);
  const auto step_times = [&](double least, std::uint16_t late, bool pauses) {
    const Operation operation = tolerant(kCount, {.least_contributors = least});
    SimulatedGroup group({.ranks = kRanks, .rate = base::gigabits_per_second(1)});
    if (pauses) {
      add_fault(group, up_link(late), scenario::FaultKind::kDown, 1.0, pause_from, pause_until);
      add_fault(group, down_link(late), scenario::FaultKind::kDown, 1.0, pause_from, pause_until);
    }
    // All steps have the same input; each has its own output.
    std::vector<std::vector<std::vector<float>>> outputs(
        kSteps, std::vector<std::vector<float>>(kRanks, std::vector<float>(kCount)));
    const auto step_of = [&](std::uint16_t rank, std::uint64_t step) {
      return on_buffers(operation, gradients.input[rank].data(), outputs[step][rank].data());
    };
    std::vector<std::uint64_t> next(kRanks, 0);
    std::vector<std::vector<double>> times(kRanks);
    // Every rank starts a step when it has the one before.
    group.on_ending([&](std::uint16_t rank, const Ending& ending) {
      EXPECT_TRUE(ending.status.ok()) << ending.status.message();
      times[rank].push_back(
          static_cast<double>((ending.report.finished - ending.report.queued).count()));
      if (++next[rank] < kSteps) {
        static_cast<void>(group.submit(rank, step_of(rank, next[rank])));
      }
    });
    for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_TRUE(group.submit(rank, step_of(rank, 0)).ok());
    }
    EXPECT_TRUE(group.run(kRanks * kSteps, base::seconds(20)));
    for (const std::vector<std::vector<float>>& step : outputs) {
      for (std::uint16_t rank = 1; rank < kRanks; ++rank) {
        EXPECT_EQ(step[rank], step[0]);
      }
    }
    bool is_named = false;
    std::vector<double> others;
    for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
      for (const Ending& ending : group.endings(rank)) {
        is_named = is_named || ending.report.peers[late].late;
      }
      if (rank != late) {
        others.insert(others.end(), times[rank].begin(), times[rank].end());
      }
    }
    EXPECT_EQ(is_named, pauses && least > 0);
    std::sort(others.begin(), others.end());
    return others;
  };
  const std::vector<double> calm = step_times(0.0, 0, false);
  const double usual = calm[calm.size() / 2];
  for (const std::uint16_t late : {0, 5}) {
    const std::vector<double> disturbed = step_times(0.75, late, true);
    // A step only waits for the network here, and the late rank's catching up shares it.
    EXPECT_LT(disturbed[disturbed.size() * 99 / 100], 1.6 * usual) << "rank " << late;
    EXPECT_LT(disturbed.back(), 2.5 * usual) << "rank " << late;
  }
  EXPECT_GT(step_times(0.0, 5, true).back(), 5 * usual);
}

// ------------------------------------------------------------------ importance

// Tolerant all-reduces that mark expendable packets, with hosts that drop only those.

constexpr std::size_t kRowValues = 8192;
constexpr std::uint16_t kRanks = 4;
constexpr std::size_t kCount = kRanks * 2 * kRowValues;  // two rows per shard

// Each rank has small values where its neighbours have large ones.
Gradients uneven_gradients() {
  Gradients gradients(kRanks, kCount, 3, /*noise=*/1.0);
  std::fill(gradients.mean.begin(), gradients.mean.end(), 0.0F);
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
    gradients.input[rank] = codec::gaussian_values(kCount, 100U + rank);
    for (std::size_t i = 0; i < kCount; ++i) {
      gradients.input[rank][i] *= (i / kRowValues + rank) % 2 == 0 ? 1.0F : 0.3F;
      gradients.mean[i] += gradients.input[rank][i] / kRanks;
    }
  }
  return gradients;
}

std::uint64_t missing_packets(const SimulatedGroup& group) {
  std::uint64_t missing = 0;
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
    missing += group.endings(rank).back().report.total().missing;
  }
  return missing;
}

std::uint64_t repeated_packets(const SimulatedGroup& group) {
  std::uint64_t repeated = 0;
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
    repeated += group.endings(rank).back().report.packets_repeated;
  }
  return repeated;
}

// Expendable packets are within the bound: losing all of them causes no retransmission.
TEST(Importance, AllThatIsExpendableMayGoWithoutARepeat) {
  SimulatedGroup group({.ranks = kRanks, .expendable_loss = 1.0});
  Gradients gradients = uneven_gradients();
  run_once(group, gradients, tolerant(kCount, {.loss_bound_ppm = 200'000}), kRanks);
  EXPECT_GT(missing_packets(group), 0U);
  EXPECT_EQ(repeated_packets(group), 0U);
  EXPECT_LT(codec::nmse(gradients.output[0], gradients.mean), 0.05);
}

TEST(Importance, TheSameLossCostsMoreWhereItDoesNotGoByEnergy) {
  Gradients by_energy = uneven_gradients();
  SimulatedGroup selective({.ranks = kRanks, .expendable_loss = 1.0});
  run_once(selective, by_energy, tolerant(kCount, {.loss_bound_ppm = 100'000}), kRanks);
  Gradients alike = uneven_gradients();
  SimulatedGroup random({.ranks = kRanks, .expendable_loss = 0.1});
  run_once(random, alike, tolerant(kCount, {.loss_bound_ppm = 400'000, .importance = 0}), kRanks);
  EXPECT_NEAR(static_cast<double>(missing_packets(selective)) /
                  static_cast<double>(missing_packets(random)),
              1.0, 0.5);
  EXPECT_LT(2.0 * codec::nmse(by_energy.output[0], by_energy.mean),
            codec::nmse(alike.output[0], alike.mean));
}

TEST(Importance, WhatMustArriveDoesWhateverTheBound) {
  SimulatedGroup group({.ranks = kRanks, .expendable_loss = 1.0});
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
    add_fault(group, up_link(rank), scenario::FaultKind::kLoss, 0.05);
  }
  Gradients gradients = uneven_gradients();
  run_once(group, gradients, tolerant(kCount, {.loss_bound_ppm = 400'000, .importance = 7}),
           kRanks);
  EXPECT_EQ(missing_packets(group), 0U);
}

// For each rank and row: the error of the mean must have no component along the rank's row.
TEST(Importance, EveryRanksRowsAreInTheMeanWithTheirWeight) {
  constexpr int kSteps = 50;
  SimulatedGroup group({.ranks = kRanks, .expendable_loss = 0.9});
  Gradients gradients = uneven_gradients();
  const collective::Operation operation =
      tolerant(kCount, {.gather_precision = 32, .loss_bound_ppm = 250'000});
  std::vector<double> error(kCount);
  for (int step = 0; step < kSteps; ++step) {
    run_once(group, gradients, operation, kRanks, static_cast<std::size_t>(step) * kRanks);
    for (std::size_t i = 0; i < kCount; ++i) {
      error[i] += static_cast<double>(gradients.output[0][i] - gradients.mean[i]) / kSteps;
    }
  }
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
    for (std::size_t row = 0; row < kCount / kRowValues; ++row) {
      double dot = 0.0;
      double energy = 0.0;
      for (std::size_t i = row * kRowValues; i < (row + 1) * kRowValues; ++i) {
        dot += error[i] * static_cast<double>(gradients.input[rank][i]);
        energy += std::pow(static_cast<double>(gradients.input[rank][i]), 2);
      }
      EXPECT_NEAR(kRanks * dot / energy, 0.0, 0.02) << "rank " << rank << ", row " << row;
    }
  }
}

}  // namespace
}  // namespace spillway::sim
