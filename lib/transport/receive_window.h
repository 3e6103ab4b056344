// SPDX-License-Identifier: Apache-2.0
//
// A receiver's limit on the credit that one peer may hold unused, in bytes: the protection of links
// between the two that other receivers use as well. The receiver's own link is protected by the
// rate at which credit is granted (credit.h). There is no other congestion control: senders send
// what they have credit for.
//
// The receiver sees every sign of congestion first. Arrivals are summed up over a round, which is a
// window's worth of bytes, or a quarter of one when something was lost or cut:
//
//                  queueing below target        queueing above target
//   not marked     grow, faster when far off    grow by a packet
//   marked         (a better path cures that)   shrink by how far off
//
// Packets that were trimmed and have to be sent again found a full queue: the window shrinks by
// their share. Loss within the messages' bound never slows a sender down; beyond it, the window is
// halved. A window less than half used does not grow.
//
// A window begins at its initial size, or at what the link carries in a round trip if that is more,
// and may grow to twice that or to its configured most. Pure; one per peer, one thread.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace spillway::transport {

struct WindowConfig {
  base::Bytes initial = base::bytes(256 * 1024);
  base::Bytes most = base::bytes(4 * 1024 * 1024);
  base::Duration delay_target = base::microseconds(50);  // of queueing; more on a long path
};

class ReceiveWindow {
 public:
  struct Arrival {
    std::int64_t bytes = 0;
    base::Duration queued{};  // longer than the peer's quickest packets
    bool marked = false;
    bool unusable = false;  // trimmed, and must be sent again
  };

  ReceiveWindow(const WindowConfig& config, base::Bytes packet);

  std::int64_t bytes() const { return static_cast<std::int64_t>(bytes_); }

  // The round trip, and the rate of this host's link.
  void learn(base::Duration round_trip, base::BitRate rate);

  // `unused`: credit that the peer holds, in bytes. `bound`: share of packets that may be lost.
  void on_arrival(const Arrival& arrival, std::int64_t unused, double bound);
  void on_lost(std::uint64_t packets) { round_.lost += packets; }

 private:
  // Sums of a round.
  struct Round {
    std::int64_t bytes = 0;
    std::uint64_t packets = 0;
    std::uint64_t marked = 0;
    std::uint64_t unusable = 0;
    std::uint64_t lost = 0;
    std::int64_t most_unused = 0;
    base::Duration least_queued = base::nanoseconds(INT64_MAX);
  };

  void end_round(double bound);
  double shrunk_by(double bound) const;
  double grown_by() const;
  bool is_marked() const { return round_.marked * 2 > round_.packets; }

  WindowConfig config_;
  double packet_;
  double bytes_;
  bool has_shrunk_ = false;
  Round round_;
};

}  // namespace spillway::transport
