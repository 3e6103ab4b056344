// SPDX-License-Identifier: Apache-2.0
#include "sim/tcp_window.h"

#include <algorithm>

namespace spillway::sim {
namespace {

constexpr double kSmallest = 2.0;

}  // namespace

TcpWindow::TcpWindow(const TcpConfig& config)
    : kind_(config.kind),
      gain_(config.dctcp_gain),
      window_max_(config.window_max_segments()),
      window_(config.initial_window),
      threshold_(window_max_) {}

void TcpWindow::on_ack(const Ack& ack) {
  if (kind_ == TcpKind::kDctcp) {
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
  window_ = std::max(window_ * (1.0 - alpha_ / 2.0), kSmallest);
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
  threshold_ = std::max(window_ / 2.0, kSmallest);
  window_ = threshold_;
  loss_cut_until_ = next_new;
  after_timeout_ = false;
  return true;
}

void TcpWindow::on_timeout(std::uint32_t in_flight, std::uint32_t next_new) {
  threshold_ = std::max(in_flight / 2.0, kSmallest);
  window_ = 1.0;
  loss_cut_until_ = next_new;
  mark_cut_until_ = 0;
  after_timeout_ = true;
}

}  // namespace spillway::sim
