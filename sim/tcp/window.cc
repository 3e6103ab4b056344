// SPDX-License-Identifier: Apache-2.0
#include "sim/tcp/window.h"

#include <algorithm>

namespace spillway::sim {
namespace {

constexpr double kMinWindow = 2.0;      // segments
constexpr unsigned kMaxDoublings = 20;  // beyond any rto_max, without overflow

base::Duration distance(base::Duration a, base::Duration b) {
  return a > b ? a - b : b - a;
}

}  // namespace

TcpWindow::TcpWindow(const scenario::TcpConfig& config)
    : kind_(config.kind),
      gain_(config.dctcp_gain),
      window_max_(config.window_max_segments()),
      window_(config.initial_window),
      threshold_(window_max_) {}

void TcpWindow::on_ack(const Ack& ack) {
  if (kind_ == scenario::TcpKind::kDctcp) {
    count_marks(ack);
    cut_for_marks(ack);
  }
  const bool working_off_cut =
      ack.first_open < mark_cut_until_ || (ack.first_open < loss_cut_until_ && !after_timeout_);
  if (!working_off_cut) {
    grow(ack.newly_acknowledged);
  }
}

void TcpWindow::count_marks(const Ack& ack) {
  counted_ += ack.newly_acknowledged;
  counted_marked_ += ack.marked ? ack.newly_acknowledged : 0;
  if (ack.first_open < count_until_ || counted_ == 0) {
    return;
  }
  const double share = static_cast<double>(counted_marked_) / static_cast<double>(counted_);
  alpha_ += gain_ * (share - alpha_);
  counted_ = 0;
  counted_marked_ = 0;
  count_until_ = ack.next_new;
}

void TcpWindow::cut_for_marks(const Ack& ack) {
  const bool answered = ack.first_open < mark_cut_until_ || ack.first_open < loss_cut_until_;
  if (!ack.marked || answered) {
    return;
  }
  window_ = std::max(window_ * (1.0 - alpha_ / 2.0), kMinWindow);
  threshold_ = window_;
  mark_cut_until_ = ack.next_new;
}

void TcpWindow::grow(std::uint32_t segments) {
  double left = segments;
  if (window_ < threshold_) {
    const double step = std::min(left, threshold_ - window_);
    window_ += step;
    left -= step;
  }
  window_ = std::min(window_ + left / window_, window_max_);
}

bool TcpWindow::on_loss(std::uint32_t first_open, std::uint32_t next_new) {
  if (first_open < loss_cut_until_) {
    return false;
  }
  threshold_ = std::max(window_ / 2.0, kMinWindow);
  window_ = threshold_;
  loss_cut_until_ = next_new;
  after_timeout_ = false;
  return true;
}

void TcpWindow::on_timeout(std::uint32_t in_flight, std::uint32_t next_new) {
  threshold_ = std::max(in_flight / 2.0, kMinWindow);
  window_ = 1.0;
  loss_cut_until_ = next_new;
  mark_cut_until_ = 0;
  after_timeout_ = true;
}

TcpTimer::TcpTimer(const scenario::TcpConfig& config)
    : rto_min_(config.rto_min), rto_max_(config.rto_max), rto_(config.rto_initial()) {}

void TcpTimer::on_sample(base::Duration round_trip) {
  if (has_sample_) {
    deviation_ = (deviation_ * 3 + distance(smoothed_, round_trip)) / 4;
    smoothed_ = (smoothed_ * 7 + round_trip) / 8;
  } else {
    smoothed_ = round_trip;
    deviation_ = round_trip / 2;
    has_sample_ = true;
  }
  rto_ = std::max(rto_min_, smoothed_ + deviation_ * 4);
}

base::Duration TcpTimer::timeout() const {
  const unsigned doublings = std::min(doublings_, kMaxDoublings);
  return std::min(rto_ * (std::int64_t{1} << doublings), rto_max_);
}

}  // namespace spillway::sim
