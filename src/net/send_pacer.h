// SPDX-License-Identifier: Apache-2.0
//
// When the next datagrams may leave, so that a host does not send faster than its link: a bucket
// that fills at the rate and never holds more than a burst. Sending may overdraw it by what one
// decision sends; the next one waits the longer. No rate: always now. Pure; one thread.
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
                                           : base::Duration()) {}

  bool may_send(base::Instant now) const { return next_ <= now; }
  // When may_send() turns true.
  base::Instant next() const { return next_; }
  void sent(base::Bytes bytes, base::Instant now) {
    if (rate_ > base::BitRate()) {
      // What was not used for longer than a burst takes is lost.
      next_ = std::max(next_, now - burst_time_) + base::transmission_time(bytes, rate_);
    }
  }

 private:
  base::BitRate rate_;
  base::Duration burst_time_;
  base::Instant next_{base::nanoseconds(INT64_MIN / 2)};
};

}  // namespace spillway::net
