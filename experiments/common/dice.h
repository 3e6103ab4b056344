// SPDX-License-Identifier: Apache-2.0
//
// Which packets of a gradient are hit: each on its own, with the same probability. One thread.
#pragma once

#include <cstdint>

#include "base/random.h"

namespace spillway::experiments {

class Dice {
 public:
  Dice(double share, std::uint64_t seed)
      : share_(share), draws_(base::derive_key(seed, {kDomain, 0, 0, 0})) {}

  bool hits() { return draws_.next_unit() < share_; }

 private:
  // Keeps the draws apart from those of codes, which start from the same seed.
  static constexpr std::uint32_t kDomain = 0x44494345U;  // "DICE"

  double share_;
  base::RandomSequence draws_;
};

}  // namespace spillway::experiments
