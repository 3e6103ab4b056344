// SPDX-License-Identifier: Apache-2.0
//
// How long at least one lane of a rank computes. Host and device compute in parallel: such time
// counts once.
//
// Plain value. Stretches are added in the order of their beginnings.
#pragma once

#include <algorithm>

#include "base/units.h"

namespace spillway::emulate {

class BusyTime {
 public:
  void add(base::Instant from, base::Instant until) {
    counted_ += std::max(base::Duration(), until - std::max(from, until_));
    until_ = std::max(until_, until);
  }

  // The part before `end`; no stretch may begin later.
  base::Duration before(base::Instant end) const {
    return counted_ - std::max(base::Duration(), until_ - end);
  }

 private:
  base::Duration counted_{};
  base::Instant until_{};
};

}  // namespace spillway::emulate
