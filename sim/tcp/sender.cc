// SPDX-License-Identifier: Apache-2.0
#include "sim/tcp/sender.h"

#include <algorithm>

#include "base/check.h"
#include "transport/endpoint.h"

namespace spillway::sim {
namespace {

constexpr std::uint32_t kDuplicatesForLoss = 3;

}  // namespace

TcpSender::TcpSender(const scenario::TcpConfig& config, std::uint32_t segments)
    : config_(config),
      board_(segments, config.window_max_segments()),
      window_(config),
      timer_(config),
      deadline_(transport::kNever) {}

std::uint32_t TcpSender::in_flight() const {
  return board_.in_flight() - std::min(duplicates_, board_.in_flight());
}

void TcpSender::on_ack(const TcpSegment& ack, base::Instant now) {
  if (complete()) {
    return;
  }
  const std::uint32_t acknowledged_before = board_.acknowledged();
  const std::uint32_t open_before = board_.first_open();
  board_.acknowledge_below(ack.acknowledged);
  const std::uint32_t advanced_by = board_.first_open() - open_before;
  if (config_.selective_acks) {
    board_.acknowledge_run(ack.sequence, ack.selective);
  }
  const std::uint32_t newly = board_.acknowledged() - acknowledged_before;
  if (newly > 0) {
    timer_.on_sample(now.since_zero() - base::nanoseconds(ack.timestamp_ns));
    timer_.on_progress();
  }
  count_duplicate(advanced_by > 0, advanced_by);
  const bool lost = config_.selective_acks ? find_lost() : find_lost_by_duplicates(advanced_by > 0);
  if (lost) {
    start_recovery();
  }
  window_.on_ack({.newly_acknowledged = newly,
                  .marked = ack.echo_mark,
                  .first_open = board_.first_open(),
                  .next_new = board_.next_new()});
  if (newly > 0) {
    arm(now);
  }
}

void TcpSender::count_duplicate(bool advanced, std::uint32_t advanced_by) {
  if (config_.selective_acks) {
    return;
  }
  if (!advanced) {
    ++duplicates_;
  } else if (in_recovery_ && board_.first_open() < recover_until_) {
    // All but one of the segments acknowledged now were counted as duplicates on arrival.
    duplicates_ -= std::min(duplicates_, advanced_by - 1);
  } else {
    duplicates_ = 0;
    in_recovery_ = false;
  }
}

bool TcpSender::find_lost_by_duplicates(bool advanced) {
  const bool starts =
      !in_recovery_ && duplicates_ == kDuplicatesForLoss && board_.first_open() >= recover_until_;
  const bool partial = in_recovery_ && advanced;
  if (starts) {
    in_recovery_ = true;
    recover_until_ = board_.next_new();
  }
  if (starts || partial) {
    board_.lose_first_open();
    retransmit_at_once_ = true;
  }
  return starts;
}

bool TcpSender::find_lost() {
  const std::uint32_t lost_before = board_.lost();
  settle_probe();
  board_.find_lost();
  return board_.lost() > lost_before;
}

// An acknowledged probe proves that everything sent before it and not acknowledged is lost.
void TcpSender::settle_probe() {
  if (probe_ == Probe::kSent && board_.is_order_acknowledged(probe_order_)) {
    board_.lose_sent_before(probe_order_);
    probe_ = Probe::kNone;
  }
}

void TcpSender::start_recovery() {
  if (window_.on_loss(board_.first_open(), board_.next_new())) {
    ++counters_.fast_recoveries;
    retransmit_at_once_ = true;
  }
}

void TcpSender::on_timeout(base::Instant now) {
  if (now < deadline_) {
    return;
  }
  if (probe_ == Probe::kArmed) {
    probe_ = Probe::kDue;
    deadline_ = now + timer_.timeout();
    return;
  }
  ++counters_.timeouts;
  window_.on_timeout(board_.in_flight() + board_.lost(), board_.next_new());
  timer_.on_timeout();
  board_.lose_all_in_flight();
  duplicates_ = 0;
  in_recovery_ = false;
  recover_until_ = board_.next_new();
  probe_ = Probe::kNone;
  deadline_ = now + timer_.timeout();
}

bool TcpSender::can_send() const {
  if (board_.in_flight() > 0 && probe_ == Probe::kDue) {
    return true;
  }
  if (board_.lost() > 0) {
    return retransmit_at_once_ || in_flight() < window_.segments();
  }
  return board_.has_new() && in_flight() < window_.segments();
}

TcpSender::Segment TcpSender::send(base::Instant now) {
  SPILLWAY_CHECK(can_send());
  const bool was_idle = board_.in_flight() == 0;
  const Segment segment = choose_segment();
  ++counters_.segments_sent;
  counters_.retransmissions += segment.retransmit ? 1 : 0;
  if (was_idle) {
    arm(now);
  }
  return segment;
}

TcpSender::Segment TcpSender::choose_segment() {
  if (probe_ == Probe::kDue) {
    return send_probe();
  }
  if (board_.lost() > 0) {
    retransmit_at_once_ = false;
    return {board_.send_lost(), true};
  }
  return {board_.send_new(), false};
}

TcpSender::Segment TcpSender::send_probe() {
  probe_ = Probe::kSent;
  probe_order_ = board_.next_order();
  ++counters_.tail_probes;
  if (board_.has_new()) {
    return {board_.send_new(), false};
  }
  const std::uint32_t last = board_.last_in_flight();
  board_.send_again(last);
  return {last, true};
}

void TcpSender::arm(base::Instant now) {
  if (complete()) {
    deadline_ = transport::kNever;
    return;
  }
  deadline_ = now + timer_.timeout();
  const bool may_probe = config_.tail_loss_probe && config_.selective_acks && timer_.has_sample() &&
                         board_.lost() == 0 && probe_ != Probe::kSent;
  probe_ = probe_ == Probe::kSent ? Probe::kSent : Probe::kNone;
  const base::Instant probe_at = now + timer_.smoothed() * 2;
  if (may_probe && probe_at < deadline_) {
    probe_ = Probe::kArmed;
    deadline_ = probe_at;
  }
}

}  // namespace spillway::sim
