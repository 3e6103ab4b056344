// SPDX-License-Identifier: Apache-2.0
//
// How long an answer takes: the smoothed round trip and its variation (RFC 6298's averages), and
// the waits derived from them.
#pragma once

#include <algorithm>

#include "base/units.h"

namespace spillway::transport {

class RoundTrip {
 public:
  void add(base::Duration sample) {
    if (smoothed_ == base::Duration()) {
      smoothed_ = sample;
      variation_ = sample / 2;
      return;
    }
    const base::Duration error = sample > smoothed_ ? sample - smoothed_ : smoothed_ - sample;
    variation_ += (error - variation_) / 4;
    smoothed_ += (sample - smoothed_) / 8;
  }

  bool is_known() const { return smoothed_ > base::Duration(); }
  // After this long, what has not come is taken not to come.
  base::Duration patience() const { return smoothed_ + variation_ * 4; }

 private:
  base::Duration smoothed_;
  base::Duration variation_;
};

}  // namespace spillway::transport
