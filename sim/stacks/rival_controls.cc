// SPDX-License-Identifier: Apache-2.0
#include "sim/stacks/rival_controls.h"

#include <algorithm>
#include <memory>

namespace spillway::sim {

using transport::CongestionConfig;
using transport::FeedbackSample;

namespace {

constexpr double kMarkedShareGain = 1.0 / 16.0;  // DCTCP's g

// TIMELY's parameters.
constexpr double kSmoothing = 0.1;
constexpr double kDecrease = 0.25;
constexpr int kHyperactiveSteps = 5;  // after so many calm ones, growth is five times as fast
constexpr int kUpperThresholds = 10;  // upper threshold, in delay targets

}  // namespace

DctcpControl::DctcpControl(const CongestionConfig& config)
    : config_(config), window_(static_cast<double>(config.window_initial.count())) {}

void DctcpControl::set_window(double bytes) {
  window_ = std::clamp(bytes, 2.0 * static_cast<double>(config_.packet.count()),
                       static_cast<double>(config_.window_max.count()));
}

void DctcpControl::on_feedback(const FeedbackSample& sample) {
  window_acked_ += static_cast<double>(sample.acked_bytes);
  window_packets_ += sample.acked_packets;
  window_marked_ += sample.marked_packets;
  window_lost_ |= sample.over_budget;
  if (slow_start_ && sample.marked_packets == 0 && !sample.over_budget) {
    set_window(window_ + static_cast<double>(sample.acked_bytes));
  }
  if (window_acked_ >= window_ || sample.over_budget) {
    end_of_window();
  }
}

void DctcpControl::end_of_window() {
  const double marked = window_marked_ / std::max<double>(window_packets_, 1.0);
  alpha_ += kMarkedShareGain * (marked - alpha_);
  if (window_lost_) {
    set_window(window_ / 2);
    slow_start_ = false;
  } else if (window_marked_ > 0) {
    set_window(window_ * (1.0 - alpha_ / 2));
    slow_start_ = false;
  } else if (!slow_start_) {
    set_window(window_ + static_cast<double>(config_.packet.count()));
  }
  window_acked_ = 0;
  window_packets_ = 0;
  window_marked_ = 0;
  window_lost_ = false;
}

void DctcpControl::on_silence(base::Instant) {
  set_window(0);
  slow_start_ = true;
}

TimelyControl::TimelyControl(const CongestionConfig& config)
    : config_(config), window_(static_cast<double>(config.window_initial.count())) {}

void TimelyControl::set_window(double bytes) {
  window_ = std::clamp(bytes, static_cast<double>(config_.packet.count()),
                       static_cast<double>(config_.window_max.count()));
}

void TimelyControl::on_feedback(const FeedbackSample& sample) {
  if (sample.round_trip <= base::Duration()) {
    return;
  }
  base_round_trip_ = std::min(base_round_trip_, sample.round_trip);
  if (sample.over_budget && sample.now >= next_update_) {
    set_window(window_ / 2);
  }
  if (sample.now >= next_update_) {
    update_rate(sample.round_trip);
    next_update_ = sample.now + sample.round_trip;
  }
}

void TimelyControl::update_rate(base::Duration round_trip) {
  if (last_round_trip_ == base::Duration()) {
    last_round_trip_ = round_trip;
    return;
  }
  const auto difference = static_cast<double>((round_trip - last_round_trip_).count());
  last_round_trip_ = round_trip;
  smoothed_difference_ns_ += kSmoothing * (difference - smoothed_difference_ns_);
  const double gradient = smoothed_difference_ns_ / static_cast<double>(base_round_trip_.count());
  const auto step = static_cast<double>(config_.packet.count());
  const base::Duration low = base_round_trip_ + config_.delay_target;
  const base::Duration high = base_round_trip_ + config_.delay_target * kUpperThresholds;
  if (round_trip < low) {
    set_window(window_ + step);
    return;
  }
  if (round_trip > high) {
    const double excess =
        1.0 - static_cast<double>(high.count()) / static_cast<double>(round_trip.count());
    set_window(window_ * (1.0 - kDecrease * excess));
    steps_without_congestion_ = 0;
    return;
  }
  if (gradient <= 0) {
    ++steps_without_congestion_;
    set_window(window_ + (steps_without_congestion_ >= kHyperactiveSteps ? 5 * step : step));
  } else {
    steps_without_congestion_ = 0;
    set_window(window_ * (1.0 - kDecrease * std::min(gradient, 1.0)));
  }
}

void TimelyControl::on_silence(base::Instant) {
  set_window(window_ / 2);
}

namespace {

template <typename Control>
std::unique_ptr<transport::CongestionControl> make_control(const CongestionConfig& config) {
  return std::make_unique<Control>(config);
}

}  // namespace

transport::MakeCongestionControl maker_of(scenario::WindowControl control) {
  switch (control) {
    case scenario::WindowControl::kDctcp:
      return &make_control<DctcpControl>;
    case scenario::WindowControl::kTimely:
      return &make_control<TimelyControl>;
    case scenario::WindowControl::kSpillway:
      break;
  }
  return &transport::make_congestion_control;
}

}  // namespace spillway::sim
