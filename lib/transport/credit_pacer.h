// SPDX-License-Identifier: Apache-2.0
//
// Decides when each peer may send more packets: the receiver's cure for incast. The receiver knows
// who sends to it and how much, so it hands out its link's time in quanta of packets, at the rate
// of the link: the most urgent peer first, equals in turn.
//
// Credit takes a while to come back as packets, and far longer where ranks share processors. So it
// is granted ahead of the rate, up to a certain depth, like a token bucket that fills at the rate.
// The depth grows when a sender runs out of credit. It shrinks when packets are marked, or are
// trimmed and must be retransmitted.
//
// Over-send: on a trimming fabric credit may flow faster than the link, so that the bottleneck is
// always full and the excess is trimmed. The pace is steered to keep the trimmed share at its
// target: every kSampledPackets the pace moves by how far off the share was.
//
// Pure: slots in, slots out; the caller keeps the credit books. One thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <optional>

#include "base/units.h"
#include "wire/traffic_class.h"

namespace spillway::transport {

class CreditPacer {
 public:
  // Depths, as transmission time on the link.
  struct Depths {
    base::Duration least{};
    base::Duration most{};
  };
  CreditPacer(base::BitRate rate, std::optional<double> trimmed_target, const Depths& depths);

  // Adds a peer that wants credit; it must not be in line already.
  void enqueue(std::uint32_t slot, std::uint8_t priority);
  // A peer in line has become more urgent.
  void raise(std::uint32_t slot, std::uint8_t from, std::uint8_t to);
  bool empty() const { return waiting_mask_ == 0; }
  base::Instant next_grant() const { return next_grant_; }

  // Removes and returns the peer whose turn it is; call only if not empty and next_grant() has
  // come.
  std::uint32_t take_turn();
  // That peer was granted packets that take so many bytes on the wire.
  void granted(base::Bytes bytes, base::Instant now);

  void on_arrival(bool trimmed);
  // A peer has used all its credit and has more to send.
  void on_starved() { deepen(kDeeper); }
  void on_marked() { deepen(base::Duration() - depth_ / kMarkedShare); }
  void on_spoilt() { deepen(base::Duration() - depth_ / kSpoiltShare); }
  double pace() const { return pace_; }
  base::Duration depth() const { return depth_; }

 private:
  static constexpr std::uint32_t kSampledPackets = 128;
  static constexpr base::Duration kDeeper = base::microseconds(20);  // each time
  static constexpr int kMarkedShare = 512;  // the depth shrinks by one part in so many
  static constexpr int kSpoiltShare = 32;

  // Granted credit stays granted: only the next grant moves.
  void deepen(base::Duration by) {
    const base::Duration depth = std::clamp(depth_ + by, depths_.least, depths_.most);
    next_grant_ = next_grant_ - (depth - depth_);
    depth_ = depth;
  }

  base::BitRate rate_;
  std::optional<double> trimmed_target_;
  double pace_ = 1.0;
  Depths depths_;
  base::Duration depth_;
  base::Instant next_grant_;
  std::array<std::deque<std::uint32_t>, SPILLWAY_PRIORITIES> waiting_;
  std::uint32_t waiting_mask_ = 0;
  std::uint32_t sampled_packets_ = 0;
  std::uint32_t sampled_trimmed_ = 0;
};

}  // namespace spillway::transport
