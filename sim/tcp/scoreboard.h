// SPDX-License-Identifier: Apache-2.0
//
// The state of a flow's segments: in flight, lost or acknowledged.
//
// A segment is lost when three transmissions made after its own latest one have been acknowledged.
// For first transmissions this is the rule of RFC 6675. Counting transmissions instead of sequence
// numbers also detects lost retransmissions (RFC 8985 does so by time).
//
// Invariants: first_open() <= next_new() <= segments; every segment below first_open() is
// acknowledged; in_flight() + lost() is the number of segments in between that are not. Work is
// constant per transmission and acknowledgement. Memory is eight bytes per segment of the largest
// window. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

namespace spillway::sim {

class TcpScoreboard {
 public:
  TcpScoreboard(std::uint32_t segments, std::uint32_t window_max);

  std::uint32_t segments() const { return segments_; }
  std::uint32_t first_open() const { return first_open_; }
  std::uint32_t next_new() const { return next_new_; }
  std::uint32_t in_flight() const { return in_flight_; }
  std::uint32_t lost() const { return lost_; }
  std::uint32_t acknowledged() const { return acknowledged_; }
  bool complete() const { return first_open_ == segments_; }
  // True if there is a segment that was never sent and it fits the window.
  bool has_new() const { return next_new_ < segments_ && next_new_ - first_open_ < window_max_; }

  std::uint32_t send_new();
  std::uint32_t send_lost();                // the first lost one; there must be one
  void send_again(std::uint32_t sequence);  // one in flight: a probe
  std::uint32_t last_in_flight() const;     // there must be one

  // Segments that were not sent or are already acknowledged are unchanged.
  void acknowledge_below(std::uint32_t sequence);
  void acknowledge_run(std::uint32_t first, std::uint32_t last);

  // Applies the rule above. Returns how many segments it found lost.
  std::uint32_t find_lost();
  void lose_first_open();
  void lose_all_in_flight();
  // Everything in flight that was sent before the transmission `order` (see next_order()).
  void lose_sent_before(std::uint32_t order);

  // Number of transmissions so far, and so the order of the next one.
  std::uint32_t next_order() const { return next_order_; }
  bool is_order_acknowledged(std::uint32_t order) const { return latest_acknowledged_[0] > order; }

 private:
  enum class State : std::uint8_t { kInFlight, kLost, kAcknowledged };
  struct Slot {
    std::uint32_t order = 0;  // of the latest transmission
    State state = State::kAcknowledged;
  };

  Slot& slot(std::uint32_t sequence) { return slots_[sequence & mask_]; }
  const Slot& slot(std::uint32_t sequence) const { return slots_[sequence & mask_]; }
  void transmit(std::uint32_t sequence);
  void acknowledge(std::uint32_t sequence);
  void lose(std::uint32_t sequence);
  void note_acknowledged_order(std::uint32_t order);
  std::uint32_t lose_transmissions_before(std::uint32_t order);

  std::uint32_t segments_;
  std::uint32_t window_max_;
  std::uint32_t mask_;
  std::vector<Slot> slots_;  // a ring, by sequence number
  std::uint32_t first_open_ = 0;
  std::uint32_t next_new_ = 0;
  std::uint32_t in_flight_ = 0;
  std::uint32_t lost_ = 0;
  std::uint32_t acknowledged_ = 0;
  std::uint32_t lost_hint_ = 0;  // no segment below it is lost
  // Transmissions that may still be found lost: their sequence numbers, by order.
  std::deque<std::uint32_t> log_;
  std::uint32_t log_first_order_ = 0;
  std::uint32_t next_order_ = 0;
  // The latest three acknowledged transmissions, as order + 1 (0: none), latest first.
  std::array<std::uint32_t, 3> latest_acknowledged_{};
};

}  // namespace spillway::sim
