// SPDX-License-Identifier: Apache-2.0
#include "sim/tcp/scoreboard.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace spillway::sim {

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

}  // namespace spillway::sim
