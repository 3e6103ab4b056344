// SPDX-License-Identifier: Apache-2.0
//
// The sending half of an endpoint: outgoing messages, in which order their packets go out, and the
// probes that find out what came.
//
// Order: by priority, strictly; messages of one priority take turns burst by burst. A message that
// has no credit, or whose peer's window is full, is out of the running until that changes.
//
// Timer: a message that neither sent nor heard anything for a while is probed, with doubling waits
// between tuning.probe_min and probe_max. Right after its last packet the wait is only as long as
// packets may still be on their way, so that an answer is not about packets in flight.
#pragma once

#include <array>

#include "transport/core.h"
#include "transport/message_table.h"
#include "transport/outgoing_message.h"
#include "transport/ready_list.h"

namespace spillway::transport {

class Sender {
 public:
  explicit Sender(Core& core);

  base::Status send(const SendSpec& spec, base::Instant now);

  void on_stop(const wire::ControlPacket& packet, base::Instant now);
  void on_bitmap(const wire::ControlPacket& packet, base::Instant now);
  void on_credit(const wire::ControlPacket& packet, Peer& peer, base::Instant now);
  void on_wait(const wire::ControlPacket& packet, base::Instant now);
  void on_timer(std::uint32_t slot, base::Instant now);
  void end_messages_to(Peer& peer, Outcome outcome);
  void withdraw(const wire::MessageId& id, std::uint16_t to);

  // Writes the probe of a slot from the control queue. False: it has nothing to say any more.
  bool write_probe(std::uint32_t slot, wire::ControlPacket& packet);
  bool poll_data(base::Instant now, Transmission& out);

  std::size_t memory_bytes();

 private:
  static constexpr std::uint32_t kNoSlot = MessageTable<OutgoingMessage>::kNoSlot;

  std::uint32_t find(const wire::ControlPacket& packet) const;
  base::Status check(const SendSpec& spec) const;
  void make_ready(std::uint32_t slot);
  void queue_probe(std::uint32_t slot);
  void probe_after(std::uint32_t slot, base::Duration wait, base::Instant now);
  base::Duration answer_wait(const Peer& peer) const;
  // True if packets came that were not reported before.
  bool take_path_reports(const wire::ControlPacket& packet, Peer& peer, base::Instant now);
  void tell_control(const FeedbackSample& sample, Peer& peer);
  void unblock(Peer& peer);
  void begin(std::uint32_t slot, Peer& peer, const SendSpec& spec, base::Instant now);
  void transmit(OutgoingMessage& message, base::Instant now, Transmission& out);
  bool asks_for_report(const OutgoingMessage& message);
  void expect_answer(OutgoingMessage& message, base::Instant now);
  void take_off(OutgoingMessage& message);
  void drop(std::uint32_t slot);
  void finish(std::uint32_t slot, Outcome outcome, std::uint32_t delivered);

  Core& core_;
  MessageTable<OutgoingMessage> messages_;
  std::uint32_t ready_mask_ = 0;  // bit per priority whose list has entries
  std::array<ReadyList, SPILLWAY_PRIORITIES> ready_;
};

}  // namespace spillway::transport
