// SPDX-License-Identifier: Apache-2.0
#include "sim/counter_sampler.h"

namespace spillway::sim {

CounterSampler::CounterSampler(Network& network) : network_(network) {
  take(network.now());
}

void CounterSampler::take(base::Instant now) {
  const spillway_port_counters ports = network_.totals().ports;
  samples_.push_back({.at = now,
                      .marked = ports.packets[SPILLWAY_REASON_MARKED],
                      .trimmed = ports.packets[SPILLWAY_REASON_TRIMMED],
                      .dropped = dropped_packets(ports)});
  if (samples_.size() >= kMostSamples) {
    forget_every_second();
  }
  network_.at(now + interval_, [this](base::Instant when) { take(when); });
}

void CounterSampler::forget_every_second() {
  for (std::size_t i = 0; 2 * i < samples_.size(); ++i) {
    samples_[i] = samples_[2 * i];
  }
  samples_.resize((samples_.size() + 1) / 2);
  interval_ = interval_ * 2;
}

}  // namespace spillway::sim
