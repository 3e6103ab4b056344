// SPDX-License-Identifier: Apache-2.0
#include "transport/dctcp_control.h"

#include <algorithm>

namespace spillway::transport {
namespace {

constexpr double kGain = 1.0 / 16.0;

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
  alpha_ += kGain * (marked - alpha_);
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

}  // namespace spillway::transport
