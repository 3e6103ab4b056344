// SPDX-License-Identifier: Apache-2.0
#include "transport/timely_control.h"

#include <algorithm>

namespace spillway::transport {
namespace {

constexpr double kSmoothing = 0.1;
constexpr double kDecrease = 0.25;
constexpr int kHyperactiveSteps = 5;  // after so many calm ones, growth is five times as fast
constexpr int kUpperThresholds = 10;  // upper threshold, in delay targets

}  // namespace

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

}  // namespace spillway::transport
