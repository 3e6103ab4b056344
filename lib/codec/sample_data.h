// SPDX-License-Identifier: Apache-2.0
//
// Synthetic gradients, as floats and quantised to integers, and an error measure. For tests,
// benchmarks and `spillway codec`. Header-only.
#pragma once

#include <algorithm>
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

// ------------------------------------------------------------------ quantised gradients

namespace spillway::codec::entropy {

// Sums of `ranks` normally distributed numbers, each rounded and clamped to int8.
inline std::vector<std::int32_t> gaussian_integers(std::size_t count, double sigma,
                                                   std::uint64_t seed, unsigned ranks = 1) {
  base::RandomSequence random(seed);
  std::vector<std::int32_t> values(count);
  for (std::int32_t& value : values) {
    for (unsigned rank = 0; rank < ranks; ++rank) {
      const double drawn = std::nearbyint(random.next_gaussian() * sigma);
      value += static_cast<std::int32_t>(std::clamp(drawn, -127.0, 127.0));
    }
  }
  return values;
}

// Laplace distribution: a heavier tail, more zeros.
inline std::vector<std::int32_t> laplace_integers(std::size_t count, double scale,
                                                  std::uint64_t seed) {
  base::RandomSequence random(seed);
  std::vector<std::int32_t> values(count);
  for (std::int32_t& value : values) {
    const double magnitude = -std::log(1.0 - random.next_unit()) * scale;
    const auto rounded = static_cast<std::int32_t>(std::nearbyint(magnitude));
    value = (random.next_word() & 1U) != 0 ? -rounded : rounded;
  }
  return values;
}

template <typename Value>
std::vector<Value> narrowed(const std::vector<std::int32_t>& values) {
  std::vector<Value> narrow(values.size());
  std::transform(values.begin(), values.end(), narrow.begin(),
                 [](std::int32_t value) { return static_cast<Value>(value); });
  return narrow;
}

}  // namespace spillway::codec::entropy
