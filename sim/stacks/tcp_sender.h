// SPDX-License-Identifier: Apache-2.0
//
// The sending end of a simulated TCP flow (TcpSender), from its parts: the state of segments
// (TcpScoreboard), the congestion window (TcpWindow) and the timers (TcpTimer). RFCs are named
// where their rules are.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "base/units.h"
#include "sim/packet.h"
#include "sim/scenario/job.h"

namespace spillway::sim {

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

// The number of segments a TCP flow may have in flight (TcpWindow): slow start, congestion
// avoidance, and the reactions to marks, losses and timeouts. Also the retransmission timeout
// (TcpTimer).
//
//   loss      half the window, once per window of data (RFC 5681)
//   marks     DCTCP only (RFC 8257): less alpha / 2, once per window; alpha follows the share of
//             acknowledged segments that were marked, with gain 1/16
//   timeout   slow start from one segment, up to half of what was outstanding
//
// After a cut the window does not grow until everything sent before the cut is acknowledged, as in
// Linux. Only a timeout takes it below two segments.

class TcpWindow {
 public:
  explicit TcpWindow(const scenario::TcpConfig& config);

  struct Ack {
    std::uint32_t newly_acknowledged = 0;  // segments
    bool marked = false;
    std::uint32_t first_open = 0;  // the scoreboard's, after this ACK
    std::uint32_t next_new = 0;
  };
  void on_ack(const Ack& ack);
  // Returns false if the window was already cut for this window of data.
  bool on_loss(std::uint32_t first_open, std::uint32_t next_new);
  void on_timeout(std::uint32_t in_flight, std::uint32_t next_new);

  std::uint32_t segments() const { return static_cast<std::uint32_t>(window_); }
  double alpha() const { return alpha_; }

 private:
  void count_marks(const Ack& ack);
  void cut_for_marks(const Ack& ack);
  void grow(std::uint32_t segments);

  scenario::TcpKind kind_;
  double gain_;
  double window_max_;
  double window_;
  double threshold_;                  // of slow start
  double alpha_ = 1.0;                // pessimistic at first, as in RFC 8257
  std::uint32_t loss_cut_until_ = 0;  // sequence numbers: a cut covers all segments below
  std::uint32_t mark_cut_until_ = 0;
  std::uint32_t count_until_ = 0;
  std::uint64_t counted_ = 0;
  std::uint64_t counted_marked_ = 0;
  bool after_timeout_ = false;
};

// The retransmission timeout (RFC 6298): the smoothed round trip plus four times its deviation, at
// least rto_min, doubled with every timeout until something new is acknowledged. The clock's
// granularity is a nanosecond, so the deviation needs no lower bound.
class TcpTimer {
 public:
  explicit TcpTimer(const scenario::TcpConfig& config);

  void on_sample(base::Duration round_trip);
  void on_progress() { doublings_ = 0; }
  void on_timeout() { ++doublings_; }

  base::Duration timeout() const;
  bool has_sample() const { return has_sample_; }
  base::Duration smoothed() const { return smoothed_; }

 private:
  base::Duration rto_min_;
  base::Duration rto_max_;
  base::Duration rto_;  // before doublings
  base::Duration smoothed_;
  base::Duration deviation_;
  unsigned doublings_ = 0;
  bool has_sample_ = false;
};

// The sending end of one TCP flow as a pure state machine: ACKs and time go in, segments come out.
//
// With selective acknowledgements the scoreboard finds lost segments. Without them, NewReno does
// (RFC 6582): the first open segment is lost after three duplicate ACKs, and again at each partial
// ACK until recovery ends. Either way the first lost segment is sent at once, the others as the
// window allows, lost ones before new ones. A timeout declares everything in flight lost.

struct TcpCounters {
  std::uint64_t segments_sent = 0;  // including retransmissions
  std::uint64_t retransmissions = 0;
  std::uint64_t fast_recoveries = 0;
  std::uint64_t timeouts = 0;
  std::uint64_t tail_probes = 0;
  std::uint64_t marked = 0;  // segments that arrived with congestion experienced

  TcpCounters& operator+=(const TcpCounters& other) {
    segments_sent += other.segments_sent;
    retransmissions += other.retransmissions;
    fast_recoveries += other.fast_recoveries;
    timeouts += other.timeouts;
    tail_probes += other.tail_probes;
    marked += other.marked;
    return *this;
  }
};

class TcpSender {
 public:
  TcpSender(const scenario::TcpConfig& config, std::uint32_t segments);

  void on_ack(const TcpSegment& ack, base::Instant now);
  // Call when the clock has passed timeout().
  void on_timeout(base::Instant now);
  base::Instant timeout() const { return deadline_; }

  struct Segment {
    std::uint32_t sequence = 0;
    bool retransmit = false;
  };
  bool can_send() const;
  Segment send(base::Instant now);  // can_send() must hold

  bool complete() const { return board_.complete(); }
  const TcpWindow& window() const { return window_; }
  const TcpCounters& counters() const { return counters_; }

 private:
  std::uint32_t in_flight() const;
  void count_duplicate(bool advanced, std::uint32_t advanced_by);
  bool find_lost_by_duplicates(bool advanced);
  bool find_lost();
  void start_recovery();
  void settle_probe();
  Segment choose_segment();
  Segment send_probe();
  void arm(base::Instant now);

  scenario::TcpConfig config_;
  TcpScoreboard board_;
  TcpWindow window_;
  TcpTimer timer_;
  TcpCounters counters_;
  base::Instant deadline_;
  bool retransmit_at_once_ = false;
  // Used without selective acknowledgements only.
  std::uint32_t duplicates_ = 0;
  std::uint32_t recover_until_ = 0;
  bool in_recovery_ = false;
  // Used with tail loss probes only.
  enum class Probe : std::uint8_t { kNone, kArmed, kDue, kSent };
  Probe probe_ = Probe::kNone;
  std::uint32_t probe_order_ = 0;
};

}  // namespace spillway::sim
