// SPDX-License-Identifier: Apache-2.0
//
// Paces datagrams so that a host does not send faster than its link: a token bucket that fills at
// the rate and holds at most a burst. Senders overdraw it by half a burst and then wait until the
// debt is paid. Sleeping between any two packets would cost too many sleeps and wakeups. A rate of
// zero never waits. Pure; one thread.
#pragma once

#include <algorithm>

#include "base/units.h"

namespace spillway::net {

class SendPacer {
 public:
  // A rate of zero: no pacing.
  SendPacer(base::BitRate rate, base::Bytes burst)
      : rate_(rate),
        burst_time_(rate > base::BitRate() ? base::transmission_time(burst, rate)
                                           : base::Duration()),
        ahead_(burst_time_ / 2) {}

  bool may_send(base::Instant now) const { return next_ <= (holds_ ? now : now + ahead_); }
  // When may_send() becomes true.
  base::Instant next() const { return holds_ ? next_ : next_ - ahead_; }
  void sent(base::Bytes bytes, base::Instant now) {
    if (rate_ > base::BitRate()) {
      // Unused time beyond one burst is forfeited.
      next_ = std::max(next_, now - burst_time_) + base::transmission_time(bytes, rate_);
      holds_ = next_ > now + ahead_;
    }
  }

 private:
  base::BitRate rate_;
  base::Duration burst_time_;
  base::Duration ahead_;  // how far the bucket may be overdrawn
  base::Instant next_{base::nanoseconds(INT64_MIN / 2)};
  bool holds_ = false;  // overdrawn, and the debt not yet paid
};

}  // namespace spillway::net
