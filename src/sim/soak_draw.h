// SPDX-License-Identifier: Apache-2.0
//
// Dice for soak worlds: draws in the forms that worlds are described in. One stream per world; the
// order of draws is part of what a seed means.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "base/random.h"
#include "base/units.h"

namespace spillway::sim {

class SoakDraw {
 public:
  explicit SoakDraw(std::uint64_t seed) : random_(seed) {}

  bool chance(double probability) { return random_.next_unit() < probability; }

  // From `least` to `most`, both included.
  std::uint64_t between(std::uint64_t least, std::uint64_t most) {
    return least + random_.next_below(most - least + 1);
  }
  // The same with every magnitude as likely as the others; least > 0.
  std::uint64_t magnitude(std::uint64_t least, std::uint64_t most) {
    const double ratio = static_cast<double>(most) / static_cast<double>(least);
    return static_cast<std::uint64_t>(static_cast<double>(least) *
                                      std::exp(random_.next_unit() * std::log(ratio)));
  }
  base::Duration time(base::Duration least, base::Duration most) {
    return base::nanoseconds(static_cast<std::int64_t>(magnitude(
        static_cast<std::uint64_t>(least.count()), static_cast<std::uint64_t>(most.count()))));
  }

  template <typename T>
  T pick(std::initializer_list<T> choices) {
    return *(choices.begin() + random_.next_below(choices.size()));
  }

 private:
  base::RandomSequence random_;
};

}  // namespace spillway::sim
