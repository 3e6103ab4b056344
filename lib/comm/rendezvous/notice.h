// SPDX-License-Identifier: Apache-2.0
//
// The wording and timing of a rendezvous's messages to people.
//
// A waiting rank logs so after kFirstNotice, then at doubling intervals: a hung job explains
// itself, and the log does not fill up.
//
// Plain values, given the time, and pure functions. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/units.h"

namespace spillway::runtime {

inline constexpr base::Duration kFirstNotice = base::seconds(10);

class WaitNotice {
 public:
  explicit WaitNotice(base::Instant begin) : begin_(begin) {}

  // When the next notice is due.
  base::Instant next() const { return begin_ + after_; }
  base::Duration waited(base::Instant now) const { return now - begin_; }

  // True once for each time that a notice is due.
  bool is_due(base::Instant now) {
    if (now < next()) {
      return false;
    }
    while (next() <= now) {
      after_ = after_ * 2;
    }
    return true;
  }

 private:
  base::Instant begin_;
  base::Duration after_ = kFirstNotice;
};

// "rank 3 of 8", "ranks 3 and 7 of 8", "ranks 1-5 and 7 of 8". Long lists end with the number of
// others. `ranks` ascend and are not empty.
std::string name_ranks(std::span<const std::uint32_t> ranks, std::uint32_t world);

// "30 s", "250 ms"
std::string name_duration(base::Duration duration);

}  // namespace spillway::runtime
