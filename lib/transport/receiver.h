// SPDX-License-Identifier: Apache-2.0
//
// The receiving half of an endpoint: expected messages, credit for their senders, answers to
// probes, and the end of messages.
//
// Only expected messages take memory. Packets of others are counted and dropped, or kept as far as
// limits.early_bytes allows; a probe for one is answered with WAIT, so that its sender knows this
// end is alive. The latest limits.finished_kept ended messages are kept. Of older ones only how
// they ended is kept (EndedMessages) while their operations go on, and nothing afterwards. One
// thread.
#pragma once

#include <deque>

#include "transport/core.h"
#include "transport/credit_pacer.h"
#include "transport/early_arrivals.h"
#include "transport/ended_messages.h"
#include "transport/incoming_message.h"
#include "transport/message_table.h"
#include "wire/frame_overhead.h"

namespace spillway::transport {

class Receiver {
 public:
  explicit Receiver(Core& core);

  base::Status expect(const ReceiveOptions& options, base::Instant now);
  void cancel(const wire::MessageId& id, base::Instant now);
  void withdraw(const wire::MessageId& id, base::Instant now);
  // Forgets ended messages of operations that are over: those are recognized without them.
  void forget_ended(std::uint64_t operation) { ended_.forget(operation); }
  void forget_ended_before(std::uint64_t operation) { ended_.forget_before(operation); }
  void forget_ended_before(std::uint16_t peer, std::uint64_t operation) {
    ended_.forget_before(peer, operation);
  }

  void on_data(const DataArrival& arrival, Peer& peer, base::Instant now);
  void on_probe(const wire::ControlPacket& packet, Peer& peer, base::Instant now);
  void on_timer(std::uint32_t slot, base::Instant now);
  void on_credit_timer(base::Instant now);
  void end_messages_from(Peer& peer, base::Instant now);
  // Grants credit for all that is missing of its messages, at once: the peer is a stream.
  void grant_all(Peer& peer);
  // Asks a peer that has long been silent for a sign of life.
  void ask_for_answer(Peer& peer);

  // Writes the next answer of a slot from the control queue; false if nothing is left to say.
  bool write_answer(std::uint32_t slot, wire::ControlPacket& packet, base::Instant now);
  // Whether that slot has more to say.
  bool owes_more(std::uint32_t slot);
  void leave_queue(std::uint32_t slot);

  std::size_t memory_bytes();

 private:
  // Bytes that a packet takes of a link besides its payload. Credit is counted with IPv4's headers,
  // whatever carries the packets.
  static constexpr std::uint32_t kFrameOverhead =
      spillway_frame_overhead(0) + SPILLWAY_WIRE_OVERHEAD;

  using Table = MessageTable<IncomingMessage>;
  static constexpr std::uint32_t kNoSlot = Table::kNoSlot;

  base::Status check(const ReceiveOptions& options) const;
  IncomingMessage* find(const wire::MessageId& id, Peer& peer);
  void count_unexpected(const wire::MessageId& id, const Peer& peer);
  void take(IncomingMessage& message, const DataArrival& arrival, base::Instant now);
  void begin(IncomingMessage& message, base::Instant now);
  void look_for_stall(IncomingMessage& message, std::uint32_t newly_sent, base::Instant now);
  void look_for_end(IncomingMessage& message, base::Instant now);
  void expect_no_more(IncomingMessage& message, const wire::DataStamp& stamp, base::Instant now);
  void say_missing(IncomingMessage& message);
  void finish(std::uint32_t slot, Outcome outcome, base::Instant now);
  void end(std::uint32_t slot, Outcome outcome, base::Instant now);
  void release_oldest();
  void queue_stop(EndedMessage& ended, const wire::MessageId& id, std::uint32_t generation,
                  base::Instant now);
  void tell_unexpected(const wire::MessageId& id, bool contradicts);
  void take_early(const wire::MessageId& id, Peer& peer, base::Instant now);
  void want_credit(Peer& peer);
  void tell_credit(Peer& peer);
  void feel_link(const IncomingMessage& message, const DataArrival& arrival);
  void queue_answer(std::uint32_t slot);
  void queue_stop(std::uint32_t slot, base::Instant now);
  void arm(std::uint32_t slot, base::Instant due);
  void arm_pacer();
  std::uint32_t standing_credit() const;
  std::uint32_t grantable(const Peer& peer) const;

  Core& core_;
  Table messages_;
  EarlyArrivals early_;
  CreditPacer pacer_;
  base::Instant pacer_armed_ = kNever;
  std::deque<std::uint32_t> finished_;  // slots, the oldest first
  EndedMessages ended_;                 // released from finished_
  std::uint32_t active_ = 0;
};

}  // namespace spillway::transport
