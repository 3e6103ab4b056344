// SPDX-License-Identifier: Apache-2.0
//
// When somebody who waits for others says so: after a while, and then each time after twice as
// long, so that a job that hangs is no riddle and a log does not fill up.
//
// A plain value; it is handed the time. One thread.
#pragma once

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

}  // namespace spillway::runtime
