// SPDX-License-Identifier: Apache-2.0
//
// Rivals of our congestion control, for comparison: DCTCP by marks, TIMELY by delay. They get the
// same feedback as ours (transport/congestion_control.h) and keep its contract: one per peer, one
// thread, time is in the sample.
#pragma once

#include <cstdint>

#include "sim/scenario/job.h"
#include "transport/congestion_control.h"

namespace spillway::sim {

// DCTCP's window (RFC 8257): the marked share is averaged with gain 1/16, the window shrinks by
// half of that share once per window and grows by a packet; slow start until the first mark; losses
// over budget halve it.
class DctcpControl final : public transport::CongestionControl {
 public:
  explicit DctcpControl(const transport::CongestionConfig& config);

  void on_feedback(const transport::FeedbackSample& sample) override;
  void on_silence(base::Instant now) override;
  base::Bytes window() const override { return base::bytes(static_cast<std::int64_t>(window_)); }
  double marked_share() const { return alpha_; }

 private:
  void end_of_window();
  void set_window(double bytes);

  transport::CongestionConfig config_;
  double window_;
  double alpha_ = 1.0;
  bool slow_start_ = true;
  double window_acked_ = 0;  // since the current window of data began
  std::uint32_t window_packets_ = 0;
  std::uint32_t window_marked_ = 0;
  bool window_lost_ = false;
};

// TIMELY's rate from round-trip times and their gradient (Mittal et al., SIGCOMM'15), as MLT uses
// it. The rate becomes a window of rate times round trip. Between the two thresholds the rate
// follows the gradient; below the lower it grows, above the upper it shrinks.
class TimelyControl final : public transport::CongestionControl {
 public:
  explicit TimelyControl(const transport::CongestionConfig& config);

  void on_feedback(const transport::FeedbackSample& sample) override;
  void on_silence(base::Instant now) override;
  base::Bytes window() const override { return base::bytes(static_cast<std::int64_t>(window_)); }

 private:
  void update_rate(base::Duration round_trip);
  void set_window(double bytes);

  transport::CongestionConfig config_;
  double window_;  // rate times the smoothed round trip
  base::Duration base_round_trip_ = base::seconds(3600);
  base::Duration last_round_trip_;
  double smoothed_difference_ns_ = 0;
  int steps_without_congestion_ = 0;
  base::Instant next_update_;
};

// Makes the controller that a scenario names, for an endpoint's CongestionConfig::make.
transport::MakeCongestionControl maker_of(scenario::WindowControl control);

}  // namespace spillway::sim
