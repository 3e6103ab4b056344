// SPDX-License-Identifier: Apache-2.0
//
// A message under way to a peer: which packet goes next, how many may go, what has to be repeated.
// A plain state with small steps; the Sender decides when to take them.
//
// A message is sent once through in SendOrder (the first pass). After that only what the receiver
// reported missing and the budget does not forgive is repeated, round by round.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "transport/message.h"
#include "transport/send_order.h"

namespace spillway::transport {

struct Peer;

struct OutgoingMessage {
  // What every packet needs, side by side.
  Peer* peer = nullptr;
  PayloadSource* source = nullptr;
  wire::MessageId id;
  std::uint32_t slot = 0;
  std::uint32_t packets = 0;
  std::uint32_t packet_bytes = 0;
  std::uint32_t next_position = 0;  // of the first pass
  std::uint32_t next_repeat = 0;
  std::uint32_t transmitted = 0;
  std::uint32_t granted = 0;
  std::uint32_t unsolicited = 0;  // of those, without being asked for
  LossPolicy loss;
  std::uint8_t priority = 0;
  std::uint8_t importance = 0;
  std::uint8_t path = 0;
  std::uint8_t burst_left = 0;  // packets, before the next path takes over
  bool is_ready = false;        // in the scheduler
  bool is_blocked = false;      // in its peer's list of those that wait for the window
  bool is_paused = false;       // its receiver does not expect it yet
  bool probe_queued = false;    // in the control queue
  base::Duration probe_wait;    // doubles with every unanswered probe
  base::Instant last_sent;
  base::Instant probe_due;
  base::Instant probe_armed;  // the earliest entry in the timer queue
  SendOrder order;
  std::vector<std::uint8_t> packet_importance;  // empty: `importance` for all

  std::vector<std::uint16_t> repeats;
  std::uint32_t repeat_generation = 0;  // of the probe whose answers filled `repeats`
  std::uint32_t repeat_quota = 0;       // unimportant packets that round may still add
  std::uint32_t important = 0;          // packets that must arrive
  std::uint32_t generation = 0;         // of the latest probe

  bool has_packet() const { return next_position < packets || next_repeat < repeats.size(); }
  bool has_credit() const { return transmitted < granted; }
  bool all_sent() const { return !has_packet(); }

  std::uint8_t importance_of(std::uint32_t packet) const {
    return packet_importance.empty() ? importance : packet_importance[packet];
  }

  // Back to the first packet, as if none had been sent.
  void start_over() {
    granted = std::max(granted, transmitted + unsolicited);
    next_position = 0;
    next_repeat = 0;
    repeats.clear();
    order = SendOrder(packets);
  }

  // Fills in what the next packet is, and moves on; has_packet() must hold.
  void take_next(DataStamp& stamp);

  // Takes in a BITMAP that answers the latest probe, or follows it unasked: adds to `repeats` what
  // must be sent again.
  void plan_repeats(const wire::ControlPacket& bitmap);

  std::size_t memory_bytes() const;
};

}  // namespace spillway::transport
