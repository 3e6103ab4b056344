// SPDX-License-Identifier: Apache-2.0
//
// When which incoming message may have more packets sent: the receiver's cure for incast. It knows
// everyone who sends to it and how much, so it hands out its link's time: a quantum of packets at a
// time, at the rate of the link, the most urgent messages first, equals in turn.
//
// Over-send: on a trimming fabric credit may flow faster than the link, so that the bottleneck is
// always full and the excess is trimmed. The pace is steered to keep the trimmed share at its
// target: every kSampledPackets the pace moves by how far off the share was.
//
// Pure: slots in, slots out; whoever grants keeps the books. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>

#include "base/units.h"
#include "wire/traffic_class.h"

namespace spillway::transport {

class CreditPacer {
 public:
  CreditPacer(base::BitRate rate, std::optional<double> trimmed_target);

  // A message that wants credit; it must not be in line already.
  void enqueue(std::uint32_t slot, std::uint8_t priority);
  bool empty() const { return waiting_mask_ == 0; }
  base::Instant next_grant() const { return next_grant_; }

  // The message whose turn it is; only when not empty and next_grant() has come.
  std::uint32_t take_turn();
  // It was granted packets that take up so many bytes on the wire.
  void granted(base::Bytes bytes, base::Instant now);
  // So many bytes come without credit, and use up the link's time all the same.
  void uncredited(base::Bytes bytes, base::Instant now);

  void on_arrival(bool trimmed);
  double pace() const { return pace_; }

 private:
  static constexpr std::uint32_t kSampledPackets = 128;

  base::BitRate rate_;
  std::optional<double> trimmed_target_;
  double pace_ = 1.0;
  base::Instant next_grant_;
  std::array<std::deque<std::uint32_t>, SPILLWAY_PRIORITIES> waiting_;
  std::uint32_t waiting_mask_ = 0;
  std::uint32_t sampled_packets_ = 0;
  std::uint32_t sampled_trimmed_ = 0;
};

}  // namespace spillway::transport
