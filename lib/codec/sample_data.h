// SPDX-License-Identifier: Apache-2.0
//
// Synthetic gradients and an error measure, for tests, benchmarks and the tour. Header-only.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"

namespace spillway::codec {

inline std::vector<float> gaussian_values(std::size_t count, std::uint64_t seed) {
  base::RandomSequence random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(random.next_gaussian());
  }
  return values;
}

// Heavy tails: exp(1.5 g) with a random sign.
inline std::vector<float> lognormal_values(std::size_t count, std::uint64_t seed) {
  base::RandomSequence random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    const double magnitude = std::exp(1.5 * random.next_gaussian());
    value = static_cast<float>((random.next_word() & 1U) != 0 ? -magnitude : magnitude);
  }
  return values;
}

// One value in `period` is Gaussian, the others are zero.
inline std::vector<float> sparse_values(std::size_t count, std::size_t period, std::uint64_t seed) {
  base::RandomSequence random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = random.next_below(period) == 0 ? static_cast<float>(random.next_gaussian()) : 0.0F;
  }
  return values;
}

inline double energy(std::span<const float> values) {
  double sum = 0.0;
  for (const float value : values) {
    sum += static_cast<double>(value) * value;
  }
  return sum;
}

// Squared error relative to the truth's energy.
inline double nmse(std::span<const float> estimate, std::span<const float> truth) {
  double error = 0.0;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    const double difference = static_cast<double>(estimate[i]) - truth[i];
    error += difference * difference;
  }
  return error / energy(truth);
}

}  // namespace spillway::codec
