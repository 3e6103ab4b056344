// SPDX-License-Identifier: Apache-2.0
//
// TCP's retransmission timeout (RFC 6298): smoothed round trip plus four times its deviation, never
// below rto_min, doubled with every timeout until something new is acknowledged. The clock's grain
// is a nanosecond, so the deviation needs no floor.
#pragma once

#include <cstdint>

#include "base/units.h"
#include "sim/tcp_config.h"

namespace spillway::sim {

class TcpTimer {
 public:
  explicit TcpTimer(const TcpConfig& config);

  void on_sample(base::Duration round_trip);
  void on_progress() { doublings_ = 0; }
  void on_timeout() { ++doublings_; }

  base::Duration timeout() const;
  bool has_sample() const { return has_sample_; }
  base::Duration smoothed() const { return smoothed_; }

 private:
  base::Duration rto_min_;
  base::Duration rto_max_;
  base::Duration rto_;  // before doublings
  base::Duration smoothed_;
  base::Duration deviation_;
  unsigned doublings_ = 0;
  bool has_sample_ = false;
};

}  // namespace spillway::sim
