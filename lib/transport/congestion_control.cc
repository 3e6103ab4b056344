// SPDX-License-Identifier: Apache-2.0
#include "transport/congestion_control.h"

#include <algorithm>

namespace spillway::transport {

namespace {

// In packets: enough that packets behind a lost one reveal the loss.
constexpr double kSmallestWindow = 4.0;
constexpr double kDecreaseGain = 0.8;
constexpr double kSmallestDecrease = 0.5;  // one decrease at most halves the window
constexpr double kLeastDecrease = 1.0 / 16.0;
constexpr int kOverwhelmedTargets = 4;  // queueing delay, in delay targets
constexpr double kLittleGetsThrough = 1.0 / 8.0;
constexpr double kUnusedShare = 2.0;  // a window less than half used does not grow

double ratio(base::Duration a, base::Duration b) {
  return static_cast<double>(a.count()) / static_cast<double>(b.count());
}

// The controller of every job, after UET's NSCC. Marks and queueing delay together decide:
//
//                  delay below target          delay above target
//   not marked     grow, faster when far off   grow by a packet per round trip
//   marked         steer only (see PathSet)    shrink by how far off, once per round trip
//
// Packets that were trimmed and have to be retransmitted found a full queue: the window shrinks by
// their share, whatever the delay.
//
// Quick adaptation is the brake for incast. It acts when little gets through and more is lost or
// trimmed than wanted, or the queue is several targets long. The window then becomes what got
// through in the last round trip, instead of being halved many times over. Starts at the initial
// window.
//
// With a trimmed target (over-send) queues are full on purpose: only trims beyond twice the target
// and losses over budget count.
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
  double used(const FeedbackSample& sample) const;
  double decrease(const FeedbackSample& sample, base::Duration delay) const;
  void set_window(double bytes);

  CongestionConfig config_;
  double window_;
  base::Duration base_round_trip_ = base::seconds(3600);
  base::Instant next_decrease_;
  base::Instant ignore_until_;  // feedback until then is about packets sent before it adapted
  // The interval over which quick adaptation measures.
  base::Instant interval_end_;
  std::int64_t interval_acked_ = 0;
  std::uint32_t interval_packets_ = 0;
  std::uint32_t interval_trimmed_ = 0;
  bool interval_over_budget_ = false;
};

SpillwayControl::SpillwayControl(const CongestionConfig& config)
    : config_(config), window_(static_cast<double>(config.window_initial.count())) {}

void SpillwayControl::set_window(double bytes) {
  window_ = std::clamp(bytes, kSmallestWindow * static_cast<double>(config_.packet.count()),
                       static_cast<double>(config_.window_max.count()));
}

void SpillwayControl::on_feedback(const FeedbackSample& sample) {
  if (sample.round_trip > base::Duration()) {
    base_round_trip_ = std::min(base_round_trip_, sample.round_trip);
  }
  const base::Duration delay = std::max(sample.round_trip - base_round_trip_, base::Duration());
  adapt_quickly(sample, delay);
  if (sample.now >= ignore_until_ && config_.trimmed_target == 0.0) {
    grow_or_shrink(sample, delay);
  } else if (config_.trimmed_target > 0.0) {
    set_window(window_ + static_cast<double>(sample.acked_bytes) *
                             static_cast<double>(config_.packet.count()) / window_);
  }
}

bool SpillwayControl::is_overwhelmed(const FeedbackSample& sample, base::Duration delay) const {
  if (interval_over_budget_) {
    return true;
  }
  const double trimmed = interval_trimmed_ / std::max<double>(interval_packets_, 1.0);
  if (config_.trimmed_target > 0.0) {
    return trimmed > 2.0 * config_.trimmed_target + 0.1;
  }
  return trimmed > 0.0 ||
         (delay > config_.delay_target * kOverwhelmedTargets && sample.marked_packets > 0);
}

void SpillwayControl::adapt_quickly(const FeedbackSample& sample, base::Duration delay) {
  interval_acked_ += sample.acked_bytes;
  interval_packets_ += sample.acked_packets;
  interval_trimmed_ += sample.trimmed_packets;
  interval_over_budget_ |= sample.over_budget;
  if (sample.now < interval_end_) {
    return;
  }
  const auto achieved = static_cast<double>(interval_acked_);
  if (interval_end_ > base::Instant() && sample.now >= ignore_until_ &&
      achieved < window_ * kLittleGetsThrough && is_overwhelmed(sample, delay)) {
    set_window(achieved);
    ignore_until_ = sample.now + base_round_trip_ + delay;
  }
  interval_end_ = sample.now + base_round_trip_ + config_.delay_target;
  interval_acked_ = 0;
  interval_packets_ = 0;
  interval_trimmed_ = 0;
  interval_over_budget_ = false;
}

void SpillwayControl::grow_or_shrink(const FeedbackSample& sample, base::Duration delay) {
  const bool is_marked = sample.marked_packets * 2 > sample.acked_packets;
  const bool is_late = delay > config_.delay_target;
  const double per_window = static_cast<double>(sample.acked_bytes) / window_;
  if (sample.over_budget || sample.unusable_packets > 0 || (is_marked && is_late)) {
    if (sample.now >= next_decrease_) {
      set_window(used(sample) * std::max(kSmallestDecrease, 1.0 - decrease(sample, delay)));
      next_decrease_ = sample.now + std::max(sample.round_trip, base_round_trip_);
    }
  } else if (static_cast<double>(sample.in_flight_bytes) * kUnusedShare < window_) {
    return;  // the window was not what kept more from being sent
  } else if (!is_marked && !is_late) {
    // Up to a quarter of the window per round trip while the queue is empty.
    const double room = 1.0 - ratio(delay, config_.delay_target);
    set_window(window_ +
               per_window * (room * window_ / 4 + static_cast<double>(config_.packet.count())));
  } else if (!is_marked) {
    set_window(window_ + per_window * static_cast<double>(config_.packet.count()));
  }
}

// Decreases start here: taking unused window away does not relieve the network.
double SpillwayControl::used(const FeedbackSample& sample) const {
  return std::min(window_, static_cast<double>(sample.in_flight_bytes));
}

// The share by which the window was too large: by trimmed packets, or by how far delay is off
// target.
double SpillwayControl::decrease(const FeedbackSample& sample, base::Duration delay) const {
  if (sample.over_budget) {
    return 1.0 - kSmallestDecrease;
  }
  const double spoilt = sample.unusable_packets / std::max<double>(sample.acked_packets, 1.0);
  const bool is_marked = sample.marked_packets * 2 > sample.acked_packets;
  const double excess = is_marked && delay > config_.delay_target
                            ? kDecreaseGain * (1.0 - ratio(config_.delay_target, delay))
                            : 0.0;
  return std::max({spoilt, excess, kLeastDecrease});
}

void SpillwayControl::on_silence(base::Instant now) {
  if (now >= next_decrease_) {
    set_window(window_ / 2);
    next_decrease_ = now + base_round_trip_;
  }
}

}  // namespace

std::unique_ptr<CongestionControl> make_congestion_control(const CongestionConfig& config) {
  return std::make_unique<SpillwayControl>(config);
}

}  // namespace spillway::transport
