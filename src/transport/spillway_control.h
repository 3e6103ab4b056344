// SPDX-License-Identifier: Apache-2.0
//
// The default controller, after UET's NSCC. Marks and queueing delay together decide:
//
//                  delay below target          delay above target
//   not marked     grow, faster when far off   grow by a packet per round trip
//   marked         steer only (see PathSet)    shrink by how far off, once per round trip
//
// Quick adaptation is the brake for incast: when more is lost or trimmed than wanted, or the queue
// is several targets long, and little gets through, the window becomes what did get through in the
// last round trip, instead of being halved many times over. Starts at the initial window.
//
// With a trimmed target (over-send) queues are full on purpose: only trims beyond twice the target
// and losses over budget count.
#pragma once

#include "transport/congestion_control.h"

namespace spillway::transport {

class SpillwayControl final : public CongestionControl {
 public:
  explicit SpillwayControl(const CongestionConfig& config);

  void on_feedback(const FeedbackSample& sample) override;
  void on_silence(base::Instant now) override;
  base::Bytes window() const override { return base::bytes(static_cast<std::int64_t>(window_)); }

 private:
  bool is_overwhelmed(const FeedbackSample& sample, base::Duration delay) const;
  void adapt_quickly(const FeedbackSample& sample, base::Duration delay);
  void grow_or_shrink(const FeedbackSample& sample, base::Duration delay);
  void set_window(double bytes);

  CongestionConfig config_;
  double window_;
  base::Duration base_round_trip_ = base::seconds(3600);
  base::Instant next_decrease_;
  base::Instant deaf_until_;  // signals of packets sent before the last adaptation say nothing
  // The interval over which quick adaptation measures.
  base::Instant interval_end_;
  std::int64_t interval_acked_ = 0;
  std::uint32_t interval_packets_ = 0;
  std::uint32_t interval_trimmed_ = 0;
  bool interval_over_budget_ = false;
};

}  // namespace spillway::transport
