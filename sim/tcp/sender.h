// SPDX-License-Identifier: Apache-2.0
//
// The sending end of one TCP flow as a pure state machine: ACKs and time go in, segments come out.
//
// With selective acknowledgements the scoreboard finds lost segments. Without them, NewReno does
// (RFC 6582): the first open segment is lost after three duplicate ACKs, and again at each partial
// ACK until recovery ends. Either way the first lost segment is sent at once, the others as the
// window allows, lost ones before new ones. A timeout declares everything in flight lost.
#pragma once

#include <cstdint>

#include "base/units.h"
#include "sim/packet.h"
#include "sim/scenario/tcp_config.h"
#include "sim/tcp/scoreboard.h"
#include "sim/tcp/window.h"

namespace spillway::sim {

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
