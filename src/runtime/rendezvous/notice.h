// SPDX-License-Identifier: Apache-2.0
//
// How a rendezvous tells people what happens: the words, and when.
//
// Who waits for others says so after a while, and then each time after twice as long, so that a job
// that hangs is no riddle and a log does not fill up.
//
// Plain values, handed the time, and pure functions. One thread.
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

  // When it is due next.
  base::Instant next() const { return begin_ + after_; }
  base::Duration waited(base::Instant now) const { return now - begin_; }

  // Once for each time that it is due.
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

// "rank 3 of 8", "ranks 3 and 7 of 8", "ranks 1-5 and 7 of 8"; of long lists the first runs and how
// many others. `ranks` ascend and are not empty.
std::string name_ranks(std::span<const std::uint32_t> ranks, std::uint32_t world);

// "30 s", "250 ms"
std::string name_duration(base::Duration duration);

}  // namespace spillway::runtime
