// SPDX-License-Identifier: Apache-2.0
//
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
#pragma once

#include <cstdint>

#include "base/units.h"
#include "sim/scenario/tcp_config.h"

namespace spillway::sim {

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

}  // namespace spillway::sim
