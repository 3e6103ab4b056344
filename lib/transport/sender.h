// SPDX-License-Identifier: Apache-2.0
//
// The sending half of an endpoint: outgoing messages, whose packets go out in the order of
// SendLines, and the probes that find out what came.
//
// Timer: a message that neither sent nor heard anything for a while is probed, with doubling waits
// between ExchangeConfig's probe_min and probe_max. Right after its last packet the wait is only as
// long as packets may still be in flight, so that the answer is not about those.
#pragma once

#include <cstddef>

#include "transport/core.h"
#include "transport/message_table.h"
#include "transport/outgoing_message.h"
#include "transport/send_lines.h"

namespace spillway::transport {

class Sender {
 public:
  explicit Sender(Core& core);

  base::Status send(const SendOptions& options, base::Instant now);

  void on_stop(const wire::ControlPacket& packet, base::Instant now);
  void on_bitmap(const wire::ControlPacket& packet, base::Instant now);
  void on_credit(const wire::ControlPacket& packet, Peer& peer, base::Instant now);
  void on_wait(const wire::ControlPacket& packet, base::Instant now);
  void on_timer(std::uint32_t slot, base::Instant now);
  void end_messages_to(Peer& peer, Outcome outcome);
  // Messages that waited for room towards this peer may go, if there is some now.
  void unblock(Peer& peer) { lines_.unblock(peer); }
  // Source of the message under way to `to` that has the stamp's packet; null if there is none.
  PayloadSource* source_of(const wire::DataStamp& stamp, std::uint16_t to);
  void withdraw(const wire::MessageId& id, std::uint16_t to);

  // Writes the probe of a slot from the control queue; false if it has nothing to say any more.
  bool write_probe(std::uint32_t slot, wire::ControlPacket& packet);
  bool poll_data(base::Instant now, Transmission& out);
  // Never kIncoming.
  Holdup holdup();

  std::size_t memory_bytes();

 private:
  static constexpr std::uint32_t kNoSlot = MessageTable<OutgoingMessage>::kNoSlot;

  std::uint32_t find(const wire::ControlPacket& packet) const;
  base::Status check(const SendOptions& options) const;
  void put_in_line(OutgoingMessage& message);
  void plan_repeats(OutgoingMessage& message, const wire::ControlPacket& bitmap);
  bool waits_for_its_turn(const OutgoingMessage& message) const;
  void queue_probe(std::uint32_t slot);
  void probe_after(std::uint32_t slot, base::Duration wait, base::Instant now);
  base::Duration answer_wait(const Peer& peer) const;
  // True if packets came that were not reported before.
  bool take_path_reports(const wire::ControlPacket& packet, Peer& peer, base::Instant now);
  void tell_control(const FeedbackSample& sample, Peer& peer);
  void begin(std::uint32_t slot, Peer& peer, const SendOptions& options, base::Instant now);
  void transmit(Peer& peer, OutgoingMessage& message, base::Instant now, Transmission& out);
  bool asks_for_report(const OutgoingMessage& message);
  void expect_answer(OutgoingMessage& message, base::Instant now);
  void look_for_stall(OutgoingMessage& message, base::Instant now);
  void drop(std::uint32_t slot);
  void finish(std::uint32_t slot, Outcome outcome, std::uint32_t delivered);

  Core& core_;
  MessageTable<OutgoingMessage> messages_;
  SendLines lines_;
  std::uint64_t births_ = 0;
};

}  // namespace spillway::transport
