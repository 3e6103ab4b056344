// SPDX-License-Identifier: Apache-2.0
//
// Samples of a network's counters over simulated time, for traces. How long a run takes is not
// known beforehand: samples begin a microsecond apart, and whenever there are kMostSamples every
// second one is forgotten and the time between them doubled.
//
// Must live until the network has run. It keeps the network busy: a run with a sampler ends by its
// stop flag or its limit only.
#pragma once

#include <vector>

#include "base/units.h"
#include "sim/network.h"
#include "sim/results.h"

namespace spillway::sim {

class CounterSampler {
 public:
  static constexpr std::size_t kMostSamples = 4096;

  explicit CounterSampler(Network& network);
  CounterSampler(const CounterSampler&) = delete;
  CounterSampler& operator=(const CounterSampler&) = delete;

  const std::vector<CounterSample>& samples() const { return samples_; }

 private:
  void take(base::Instant now);
  void forget_every_second();

  Network& network_;
  base::Duration interval_ = base::microseconds(1);
  std::vector<CounterSample> samples_;
};

}  // namespace spillway::sim
