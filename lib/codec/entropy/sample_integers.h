// SPDX-License-Identifier: Apache-2.0
//
// Integers like those of quantised gradients, for tests and benchmarks. Header-only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/random.h"

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
