// SPDX-License-Identifier: Apache-2.0
//
// For tests of coded all-reduces in the simulated network: repeats an operation and reports its
// cost.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "sim/stacks/collective_tolerant_testing.h"

namespace spillway::sim {

inline SimulatedGroupOptions coded_group_of(
    std::uint16_t ranks, collective::ChunkRule rule = collective::ChunkRule::kStriped) {
  SimulatedGroupOptions options;
  options.ranks = ranks;
  options.coded_chunks = rule;
  return options;
}

inline void expect_same_bits(const Gradients& gradients) {
  for (const std::vector<float>& output : gradients.output) {
    ASSERT_EQ(
        0, std::memcmp(output.data(), gradients.output[0].data(), output.size() * sizeof(float)));
  }
}

inline double largest_error(const Gradients& gradients) {
  double largest = 0.0;
  for (std::size_t i = 0; i < gradients.mean.size(); ++i) {
    largest = std::max<double>(largest, std::abs(gradients.output[0][i] - gradients.mean[i]));
  }
  return largest;
}

// The error that a rank gets for such a request.
inline std::string refusal_of(const collective::Tolerance& tolerance,
                              collective::Algorithm algorithm) {
  SimulatedGroup group(coded_group_of(3));
  Gradients gradients(3, 100, 10);
  collective::Operation operation = tolerant(100, tolerance);
  operation.algorithm = algorithm;
  return group.submit(0, gradients.at(0, operation)).message();
}

// Repeats an operation at all ranks; each rank has its own tolerance, and so its own tensor name.
class CodedSteps {
 public:
  CodedSteps(SimulatedGroup& group, Gradients& gradients, collective::Algorithm algorithm)
      : group_(group), gradients_(gradients), algorithm_(algorithm) {}

  void step(const std::vector<collective::Tolerance>& tolerances) {
    const std::size_t ranks = gradients_.input.size();
    for (std::uint16_t rank = 0; rank < ranks; ++rank) {
      collective::Operation operation =
          tolerant(gradients_.mean.size(), tolerances[rank % tolerances.size()]);
      operation.algorithm = algorithm_;
      ASSERT_TRUE(group_.submit(rank, gradients_.at(rank, operation)).ok());
    }
    ended_ += ranks;
    ASSERT_TRUE(group_.run(ended_)) << "it hangs";
    for (std::uint16_t rank = 0; rank < ranks; ++rank) {
      const Ending& ending = group_.endings(rank).back();
      ASSERT_TRUE(ending.status.ok()) << ending.status.message();
    }
    expect_same_bits(gradients_);
  }

  std::uint64_t tables() const {
    std::uint64_t tables = 0;
    for (std::uint16_t rank = 0; rank < gradients_.input.size(); ++rank) {
      tables += group_.endings(rank).back().report.coded.tables();
    }
    return tables;
  }
  // Bits per value, over all ranks' sums of this many ranks' values.
  double bits_of(std::uint16_t ranks) const {
    std::uint64_t bytes = 0;
    std::uint64_t values = 0;
    for (std::uint16_t rank = 0; rank < gradients_.input.size(); ++rank) {
      for (const collective::CodedStep& step : group_.endings(rank).back().report.coded.steps) {
        bytes += step.ranks == ranks ? step.bytes : 0;
        values += step.ranks == ranks ? step.values : 0;
      }
    }
    return 8.0 * static_cast<double>(bytes) / static_cast<double>(values);
  }

  // Bytes of one rank.
  std::uint64_t bytes() const { return group_.endings(0).back().report.coded.bytes(); }

 private:
  SimulatedGroup& group_;
  Gradients& gradients_;
  collective::Algorithm algorithm_;
  std::size_t ended_ = 0;
};

}  // namespace spillway::sim
