// SPDX-License-Identifier: Apache-2.0
//
// Tolerant all-reduces that mark expendable packets, with hosts that drop only those.
#include <gtest/gtest.h>

#include <span>

#include "codec/sample_data.h"
#include "sim/stacks/collective_tolerant_testing.h"

namespace spillway::sim {
namespace {

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
