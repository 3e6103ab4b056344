// SPDX-License-Identifier: Apache-2.0
//
// A message under way to a peer: whether it may go, which packet goes next, what must be
// retransmitted. A plain record with small steps; the Sender decides when to take them. One thread.
//
// A message is sent once through in SendOrder (the first pass). After that only packets that the
// receiver reported missing and the budget does not forgive are retransmitted, round by round.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/tracked.h"
#include "transport/message.h"
#include "transport/stall.h"

namespace spillway::transport {

struct Peer;

// The order in which the packets of a message are sent. It strides through the message, so that
// packets lost together, or cut off by a STOP, are not neighbours. A row loses a packet here and
// there, never a run of them. Packets of every importance are on the wire at any time, so that a
// switch under pressure has unimportant ones to drop.
class SendOrder {
 public:
  SendOrder() = default;
  // Near packets times the golden ratio, which keeps any run of positions far apart; coprime with
  // packets, so that every packet has its turn.
  explicit SendOrder(std::uint32_t packets)
      : packets_(packets),
        stride_(static_cast<std::uint32_t>(std::uint64_t{packets} * 618 / 1000)) {
    while (std::gcd(stride_, packets_) != 1) {
      ++stride_;
    }
  }

  std::uint32_t packet_at(std::uint32_t position) const {
    return static_cast<std::uint32_t>(std::uint64_t{position} * stride_ % packets_);
  }

 private:
  std::uint32_t packets_ = 1;
  std::uint32_t stride_ = 0;
};

// Where an outgoing message stands, and what may follow:
//
//   kWaiting ◄──► kInLine
//
//   kWaiting   waits for its receiver or for an answer: none of its packets may go
//   kInLine    has packets for its peer, and goes when it is its turn (send_lines.h)
enum class OutgoingState : std::uint8_t { kWaiting, kInLine };
inline constexpr unsigned kOutgoingStates = 2;

constexpr bool may_follow(OutgoingState from, OutgoingState to) {
  return from != to;
}

struct OutgoingMessage {
  // Fields that every packet needs, kept together.
  Peer* peer = nullptr;
  PayloadSource* source = nullptr;
  wire::MessageId id;
  std::uint32_t slot = 0;
  std::uint64_t birth = 0;  // messages of one priority go in this order
  std::uint32_t packets = 0;
  std::uint32_t packet_bytes = 0;
  std::uint32_t next_position = 0;  // position in the first pass
  std::uint32_t next_repeat = 0;
  std::uint32_t transmitted = 0;
  LossPolicy loss;
  std::uint8_t priority = 0;
  std::uint8_t importance = 0;
  base::Tracked<OutgoingState> state{OutgoingState::kWaiting};
  bool is_paused = false;         // its receiver does not expect it yet
  bool in_control_queue = false;  // waits there to send a probe
  base::Duration probe_wait;      // doubles with every unanswered probe
  base::Instant last_sent;
  base::Instant probe_due;
  base::Instant probe_armed;  // the earliest entry in the timer queue
  SendOrder order;
  std::vector<std::uint8_t> packet_importance;  // empty: `importance` for all

  std::vector<std::uint16_t> repeats;
  std::uint32_t repeat_generation = 0;       // of the probe whose answers filled `repeats`
  std::uint32_t repeat_quota = 0;            // unimportant packets that round may still add
  std::uint32_t important = 0;               // packets that must arrive
  std::uint32_t generation = 0;              // of the latest probe
  std::uint32_t least_missing = UINT32_MAX;  // fewest packets missing that BITMAPs told of
  StallWatch stall;

  bool has_packet() const { return next_position < packets || next_repeat < repeats.size(); }
  bool all_sent() const { return !has_packet(); }
  // True if the message and its receiver let it go, whatever the peer's credit and window.
  bool may_go() const { return has_packet() && !is_paused; }

  std::uint8_t importance_of(std::uint32_t packet) const {
    return packet_importance.empty() ? importance : packet_importance[packet];
  }

  // Goes back to the first packet, as if none had been sent.
  void start_over() {
    next_position = 0;
    next_repeat = 0;
    repeats.clear();
    order = SendOrder(packets);
  }

  // Fills in the stamp of the next packet, and moves on; has_packet() must hold.
  void take_next(wire::DataStamp& stamp);

  // Takes in a BITMAP that answers the latest probe, or follows it unasked: adds to `repeats` what
  // must be retransmitted.
  void plan_repeats(const wire::ControlPacket& bitmap);

  std::size_t memory_bytes() const;
};

}  // namespace spillway::transport
