// SPDX-License-Identifier: Apache-2.0
//
// Random draws in the forms that soak worlds need. One stream per world; the order of draws is part
// of a seed's meaning.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>

#include "base/random.h"
#include "base/units.h"

namespace spillway::sim {

// Text of several draws. Construct it with braces: they evaluate the draws in order, which function
// arguments do not.
struct OrderedText {
  template <typename... Arguments>
  explicit OrderedText(fmt::format_string<Arguments...> format, Arguments&&... arguments)
      : text(fmt::format(format, std::forward<Arguments>(arguments)...)) {}

  std::string text;
};

class SoakDraw {
 public:
  explicit SoakDraw(std::uint64_t seed) : random_(seed) {}

  bool chance(double probability) { return random_.next_unit() < probability; }

  // From `least` to `most`, both inclusive.
  std::uint64_t between(std::uint64_t least, std::uint64_t most) {
    return least + random_.next_below(most - least + 1);
  }
  // The same, with every doubling equally likely; least > 0. In integers: logarithms may differ
  // between machines.
  std::uint64_t magnitude(std::uint64_t least, std::uint64_t most) {
    const auto doublings = static_cast<unsigned>(std::bit_width(most / least)) - 1;
    const std::uint64_t low = least << between(0, doublings);
    return between(low, std::min(most, 2 * low));
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
