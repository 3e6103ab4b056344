// SPDX-License-Identifier: Apache-2.0
//
// A host's own idea of the time: the network's, run a little fast or slow and ahead. Both
// directions are exact in whole nanoseconds: network_time(t) is the first instant at which the
// host's clock shows at least t, so a timer never fires early by the host's own clock.
#pragma once

#include <cstdint>

#include "base/units.h"
#include "transport/endpoint.h"

namespace spillway::sim {

class HostClock {
 public:
  HostClock() = default;
  // `skew_ppb` nanoseconds per second fast, within a tenth either way; `ahead` is not negative.
  HostClock(std::int64_t skew_ppb, base::Duration ahead) : skew_ppb_(skew_ppb), ahead_(ahead) {}

  base::Instant host_time(base::Instant network) const {
    return skew_ppb_ == 0 ? network + ahead_ : network + ahead_ + drift(network.since_zero());
  }

  base::Instant network_time(base::Instant host) const {
    if (host == transport::kNever || (skew_ppb_ == 0 && ahead_ == base::Duration())) {
      return host;
    }
    return search(host);
  }

 private:
  static constexpr std::int64_t kBillion = 1'000'000'000;

  base::Duration drift(base::Duration elapsed) const {
    const __int128 product = static_cast<__int128>(elapsed.count()) * skew_ppb_;
    return base::nanoseconds(static_cast<std::int64_t>(product / kBillion));
  }

  base::Instant search(base::Instant host) const {
    const __int128 shown = (host - ahead_).since_zero().count();
    base::Instant guess(
        base::nanoseconds(static_cast<std::int64_t>(shown * kBillion / (kBillion + skew_ppb_))));
    constexpr base::Duration kStep = base::nanoseconds(1);
    while (host_time(guess) >= host) {
      guess = guess - kStep;
    }
    while (host_time(guess) < host) {
      guess = guess + kStep;
    }
    return guess;
  }

  std::int64_t skew_ppb_ = 0;
  base::Duration ahead_;
};

}  // namespace spillway::sim
