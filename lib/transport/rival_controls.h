// SPDX-License-Identifier: Apache-2.0
//
// Other people's congestion control on our feedback, for comparison: DCTCP by marks, TIMELY by
// delay. As congestion_control.h has it: one per peer, one thread, time is in the sample.
#pragma once

#include "transport/congestion_control.h"

namespace spillway::transport {

// DCTCP's window (RFC 8257): the marked share is averaged with gain 1/16, the window shrinks by
// half of that share once per window and grows by a packet; slow start until the first mark; losses
// over budget halve it.
class DctcpControl final : public CongestionControl {
 public:
  explicit DctcpControl(const CongestionConfig& config);

  void on_feedback(const FeedbackSample& sample) override;
  void on_silence(base::Instant now) override;
  base::Bytes window() const override { return base::bytes(static_cast<std::int64_t>(window_)); }
  double marked_share() const { return alpha_; }

 private:
  void end_of_window();
  void set_window(double bytes);

  CongestionConfig config_;
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
