// SPDX-License-Identifier: Apache-2.0
//
// When the next datagrams may leave, so that a host does not send faster than its link: a bucket
// that fills at the rate and never holds more than a burst. Senders overdraw it by half a burst and
// then wait until it is even: one that slept between any two packets would spend its time going to
// sleep and waking up. No rate: always now. Pure; one thread.
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
  // When may_send() turns true.
  base::Instant next() const { return holds_ ? next_ : next_ - ahead_; }
  void sent(base::Bytes bytes, base::Instant now) {
    if (rate_ > base::BitRate()) {
      // What was not used for longer than a burst takes is lost.
      next_ = std::max(next_, now - burst_time_) + base::transmission_time(bytes, rate_);
      holds_ = next_ > now + ahead_;
    }
  }

 private:
  base::BitRate rate_;
  base::Duration burst_time_;
  base::Duration ahead_;  // that it may be overdrawn by
  base::Instant next_{base::nanoseconds(INT64_MIN / 2)};
  bool holds_ = false;  // overdrawn, and not yet even
};

}  // namespace spillway::net
