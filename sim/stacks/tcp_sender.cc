// SPDX-License-Identifier: Apache-2.0
#include "sim/stacks/tcp_sender.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "transport/endpoint.h"

namespace spillway::sim {

// ------------------------------------------------------------------ scoreboard

TcpScoreboard::TcpScoreboard(std::uint32_t segments, std::uint32_t window_max)
    : segments_(segments),
      window_max_(std::min(segments, window_max)),
      mask_(std::bit_ceil(std::max(window_max_, 1U)) - 1),
      slots_(std::size_t{mask_} + 1) {
  SPILLWAY_CHECK(segments > 0 && window_max > 0);
}

void TcpScoreboard::transmit(std::uint32_t sequence) {
  Slot& sent = slot(sequence);
  sent.order = next_order_++;
  sent.state = State::kInFlight;
  log_.push_back(sequence);
}

std::uint32_t TcpScoreboard::send_new() {
  SPILLWAY_CHECK(has_new());
  transmit(next_new_);
  ++in_flight_;
  return next_new_++;
}

std::uint32_t TcpScoreboard::send_lost() {
  SPILLWAY_CHECK(lost_ > 0);
  lost_hint_ = std::max(lost_hint_, first_open_);
  while (slot(lost_hint_).state != State::kLost) {
    ++lost_hint_;
  }
  transmit(lost_hint_);
  --lost_;
  ++in_flight_;
  return lost_hint_;
}

void TcpScoreboard::send_again(std::uint32_t sequence) {
  SPILLWAY_CHECK(slot(sequence).state == State::kInFlight);
  transmit(sequence);
}

std::uint32_t TcpScoreboard::last_in_flight() const {
  SPILLWAY_CHECK(in_flight_ > 0);
  std::uint32_t sequence = next_new_ - 1;
  while (slot(sequence).state != State::kInFlight) {
    --sequence;
  }
  return sequence;
}

void TcpScoreboard::acknowledge_below(std::uint32_t sequence) {
  const std::uint32_t end = std::min(sequence, next_new_);
  for (; first_open_ < end; ++first_open_) {
    acknowledge(first_open_);
  }
}

void TcpScoreboard::acknowledge_run(std::uint32_t first, std::uint32_t last) {
  for (std::uint32_t sequence = std::max(first, first_open_);
       sequence <= last && sequence < next_new_; ++sequence) {
    acknowledge(sequence);
  }
}

void TcpScoreboard::acknowledge(std::uint32_t sequence) {
  Slot& acknowledged = slot(sequence);
  if (acknowledged.state == State::kAcknowledged) {
    return;
  }
  --(acknowledged.state == State::kInFlight ? in_flight_ : lost_);
  acknowledged.state = State::kAcknowledged;
  ++acknowledged_;
  note_acknowledged_order(acknowledged.order);
}

void TcpScoreboard::note_acknowledged_order(std::uint32_t order) {
  std::uint32_t carried = order + 1;
  for (std::uint32_t& latest : latest_acknowledged_) {
    if (carried > latest) {
      std::swap(carried, latest);
    }
  }
}

std::uint32_t TcpScoreboard::find_lost() {
  const std::uint32_t third = latest_acknowledged_.back();
  return third == 0 ? 0 : lose_transmissions_before(third - 1);
}

std::uint32_t TcpScoreboard::lose_transmissions_before(std::uint32_t order) {
  std::uint32_t found = 0;
  for (; !log_.empty() && log_first_order_ < order; ++log_first_order_) {
    const std::uint32_t sequence = log_.front();
    log_.pop_front();
    const bool is_open = sequence >= first_open_ && slot(sequence).state == State::kInFlight;
    if (is_open && slot(sequence).order == log_first_order_) {
      lose(sequence);
      ++found;
    }
  }
  return found;
}

void TcpScoreboard::lose_sent_before(std::uint32_t order) {
  lose_transmissions_before(order);
}

void TcpScoreboard::lose(std::uint32_t sequence) {
  slot(sequence).state = State::kLost;
  --in_flight_;
  ++lost_;
  lost_hint_ = std::min(lost_hint_, sequence);
}

void TcpScoreboard::lose_first_open() {
  if (first_open_ < next_new_ && slot(first_open_).state == State::kInFlight) {
    lose(first_open_);
  }
}

void TcpScoreboard::lose_all_in_flight() {
  for (std::uint32_t sequence = first_open_; sequence < next_new_; ++sequence) {
    if (slot(sequence).state == State::kInFlight) {
      lose(sequence);
    }
  }
  log_.clear();
  log_first_order_ = next_order_;
}

// ------------------------------------------------------------------ window and timer

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

// ------------------------------------------------------------------ sender

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
