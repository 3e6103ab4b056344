// SPDX-License-Identifier: Apache-2.0
//
// For tests of tolerant all-reduces in the simulated network: gradients, faults, steps.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/random.h"
#include "sim/stacks/collective_testing.h"

namespace spillway::sim {

// Gradients of all ranks: a common part plus noise.
struct Gradients {
  Gradients(std::uint16_t ranks, std::size_t count, std::uint64_t seed, double noise = 0.5) {
    base::RandomSequence random(seed);
    std::vector<float> common(count);
    for (float& value : common) {
      value = static_cast<float>(random.next_gaussian());
    }
    mean.resize(count);
    std::vector<double> sum(count);
    for (std::uint16_t rank = 0; rank < ranks; ++rank) {
      std::vector<float>& own = input.emplace_back(count);
      for (std::size_t i = 0; i < count; ++i) {
        own[i] = common[i] + static_cast<float>(noise * random.next_gaussian());
        sum[i] += own[i];
      }
      output.emplace_back(count);
    }
    for (std::size_t i = 0; i < count; ++i) {
      mean[i] = static_cast<float>(sum[i] / ranks);
    }
  }

  collective::Operation at(std::uint16_t rank, const collective::Operation& operation) {
    return on_buffers(operation, input[rank].data(), output[rank].data());
  }

  std::vector<std::vector<float>> input;
  std::vector<std::vector<float>> output;
  std::vector<float> mean;
};

inline collective::Operation tolerant(std::size_t count,
                                      const collective::Tolerance& tolerance = {}) {
  collective::Operation operation;
  operation.count = count;
  operation.op = collective::ReduceOp::kAverage;
  operation.tolerance = tolerance;
  return operation;
}

inline void add_fault(SimulatedGroup& group, const std::string& link, scenario::FaultKind kind,
                      double share, base::Instant from = {},
                      base::Instant until = transport::kNever) {
  scenario::Fault fault;
  fault.kind = kind;
  fault.link = link;
  fault.share = share;
  fault.from = from;
  fault.until = until;
  ASSERT_TRUE(group.network().add_fault(fault).ok()) << link;
}

inline std::string up_link(std::uint16_t rank) {
  return "host" + std::to_string(rank) + "->switch0";
}
inline std::string down_link(std::uint16_t rank) {
  return "switch0->host" + std::to_string(rank);
}

inline void run_once(SimulatedGroup& group, Gradients& gradients,
                     const collective::Operation& operation, std::uint16_t ranks,
                     std::size_t ended_before = 0) {
  for (std::uint16_t rank = 0; rank < ranks; ++rank) {
    ASSERT_TRUE(group.submit(rank, gradients.at(rank, operation)).ok());
  }
  ASSERT_TRUE(group.run(ended_before + ranks));
  for (std::uint16_t rank = 0; rank < ranks; ++rank) {
    const base::Status& status = group.endings(rank).back().status;
    ASSERT_TRUE(status.ok()) << status.message();
  }
}

}  // namespace spillway::sim
