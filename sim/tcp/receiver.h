// SPDX-License-Identifier: Apache-2.0
//
// The receiving end of one TCP flow: which segments have arrived, and when to acknowledge them.
//
// In an ACK `acknowledged` is cumulative. `sequence` to `selective` is the run of segments around
// the one that caused it: a selective block, limited to kRunReach segments on either side.
// timestamp_ns echoes the oldest segment that the ACK answers.
//
// Every segments_per_ack-th segment is acknowledged. Some cause an ACK at once, whatever the count:
// segments out of order, repeated segments, one that fills a gap, the last one and, for DCTCP, a
// change of mark. What arrived before the change is then acknowledged with its own mark (RFC 8257,
// section 3.2).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/packet.h"
#include "sim/scenario/tcp_config.h"

namespace spillway::sim {

class TcpReceiver {
 public:
  static constexpr std::uint32_t kRunReach = 16;

  TcpReceiver(const scenario::TcpConfig& config, std::uint32_t segments);

  // The ACKs that a segment causes, oldest first.
  struct Acks {
    std::array<TcpSegment, 2> ack;
    unsigned count = 0;
  };
  Acks on_segment(const TcpSegment& segment, bool marked);

  // True if an ACK is being delayed; the caller runs the delay timer.
  bool has_held_ack() const { return held_ > 0; }
  TcpSegment release_held_ack();

  bool complete() const { return next_ == segments_; }

 private:
  bool has(std::uint32_t sequence) const;
  void take(std::uint32_t sequence);
  TcpSegment make_ack(std::uint32_t cause) const;

  std::uint32_t segments_;
  unsigned segments_per_ack_;
  std::uint32_t next_ = 0;           // all segments below have arrived
  std::vector<std::uint64_t> came_;  // a bit per segment; empty once all have arrived
  unsigned held_ = 0;                // segments not acknowledged yet
  std::uint32_t held_cause_ = 0;
  bool marked_ = false;  // mark of the latest segment
  std::uint32_t flow_ = 0;
  std::int64_t oldest_timestamp_ns_ = 0;  // of the held segments
};

}  // namespace spillway::sim
