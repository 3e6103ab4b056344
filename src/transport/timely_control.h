// SPDX-License-Identifier: Apache-2.0
//
// TIMELY's rate from round-trip times and their gradient (Mittal et al., SIGCOMM'15), as MLT uses
// it, for comparison. The rate becomes a window of rate times round trip. Between the two
// thresholds the rate follows the gradient; below the lower it grows, above the upper it shrinks.
#pragma once

#include "transport/congestion_control.h"

namespace spillway::transport {

class TimelyControl final : public CongestionControl {
 public:
  explicit TimelyControl(const CongestionConfig& config);

  void on_feedback(const FeedbackSample& sample) override;
  void on_silence(base::Instant now) override;
  base::Bytes window() const override { return base::bytes(static_cast<std::int64_t>(window_)); }

 private:
  void update_rate(base::Duration round_trip);
  void set_window(double bytes);

  CongestionConfig config_;
  double window_;  // rate times the smoothed round trip
  base::Duration base_round_trip_ = base::seconds(3600);
  base::Duration last_round_trip_;
  double smoothed_difference_ns_ = 0;
  int steps_without_congestion_ = 0;
  base::Instant next_update_;
};

}  // namespace spillway::transport
