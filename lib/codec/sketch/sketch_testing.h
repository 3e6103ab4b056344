// SPDX-License-Identifier: Apache-2.0
//
// Integer gradients with zeros, for the tests of this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "codec/sketch/support.h"

namespace spillway::codec::sketch {

// A set of `count` different indices.
inline Support random_support(std::size_t length, std::size_t count, std::uint64_t seed) {
  base::RandomSequence random(seed);
  Support support(length);
  for (std::size_t have = 0; have < count;) {
    const auto index = static_cast<std::size_t>(random.next_below(length));
    have += support.contains(index) ? 0 : 1;
    support.insert(index);
  }
  return support;
}

// Non-zero exactly inside the set; magnitudes up to `largest`.
inline std::vector<std::int32_t> values_on(const Support& support, std::uint64_t seed,
                                           std::int32_t largest = INT32_MAX) {
  base::RandomSequence random(seed);
  std::vector<std::int32_t> values(support.length());
  support.for_each([&](std::size_t index) {
    const auto magnitude =
        static_cast<std::int32_t>(1 + random.next_below(static_cast<std::uint64_t>(largest)));
    values[index] = (random.next_word() & 1U) != 0 ? -magnitude : magnitude;
  });
  return values;
}

}  // namespace spillway::codec::sketch
