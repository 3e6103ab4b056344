// SPDX-License-Identifier: Apache-2.0
//
// DCTCP's window (RFC 8257) on the same feedback, for comparison: the marked share is averaged with
// gain 1/16, the window shrinks by half of that share once per window and grows by a packet; slow
// start until the first mark; losses over budget halve it.
#pragma once

#include "transport/congestion_control.h"

namespace spillway::transport {

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

}  // namespace spillway::transport
