// SPDX-License-Identifier: Apache-2.0
//
// The sending half of an endpoint: outgoing messages, in which order their packets go out, and the
// probes that find out what came.
//
// Order: by priority, strictly; messages of one priority take turns burst by burst. A message that
// has no credit, or whose peer's window is full, is out of the running until that changes.
//
// Timer: a message that neither sent nor heard anything for a while is probed, with doubling waits
// between ExchangeConfig's probe_min and probe_max. Right after its last packet the wait is only as
// long as packets may still be on their way, so that an answer is not about packets in flight.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "transport/core.h"
#include "transport/message_table.h"
#include "transport/outgoing_message.h"

namespace spillway::transport {

// Messages of one priority that may send, in turn: a circle with a front. The front is looked at
// for every packet and is kept where it is found at once; the rest moves only between bursts.
class ReadyList {
 public:
  bool empty() const { return front_ == nullptr; }
  OutgoingMessage* front() const { return front_; }

  // Behind all others.
  void push_back(OutgoingMessage* message) {
    circle_.insert(circle_.begin() + static_cast<std::ptrdiff_t>(at_), message);
    at_ = circle_.size() == 1 ? 0 : at_ + 1;
    front_ = circle_[at_];
  }

  // The next one becomes the front, the front the last.
  void rotate() {
    at_ = at_ + 1 == circle_.size() ? 0 : at_ + 1;
    front_ = circle_[at_];
  }

  void erase(const OutgoingMessage* message) {
    const auto found = std::find(circle_.begin(), circle_.end(), message);
    const auto index = static_cast<std::size_t>(found - circle_.begin());
    circle_.erase(found);
    at_ -= index < at_ ? 1 : 0;
    at_ = at_ == circle_.size() ? 0 : at_;
    front_ = circle_.empty() ? nullptr : circle_[at_];
  }

 private:
  OutgoingMessage* front_ = nullptr;
  std::size_t at_ = 0;
  std::vector<OutgoingMessage*> circle_;
};

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
  // Of the message under way to `to` that has the stamp's packet; null: there is none.
  PayloadSource* source_of(const wire::DataStamp& stamp, std::uint16_t to);
  void withdraw(const wire::MessageId& id, std::uint16_t to);

  // Writes the probe of a slot from the control queue. False: it has nothing to say any more.
  bool write_probe(std::uint32_t slot, wire::ControlPacket& packet);
  bool poll_data(base::Instant now, Transmission& out);

  std::size_t memory_bytes();

 private:
  static constexpr std::uint32_t kNoSlot = MessageTable<OutgoingMessage>::kNoSlot;

  std::uint32_t find(const wire::ControlPacket& packet) const;
  base::Status check(const SendOptions& options) const;
  void make_ready(std::uint32_t slot);
  void queue_probe(std::uint32_t slot);
  void probe_after(std::uint32_t slot, base::Duration wait, base::Instant now);
  base::Duration answer_wait(const Peer& peer) const;
  // True if packets came that were not reported before.
  bool take_path_reports(const wire::ControlPacket& packet, Peer& peer, base::Instant now);
  void tell_control(const FeedbackSample& sample, Peer& peer);
  void unblock(Peer& peer);
  void begin(std::uint32_t slot, Peer& peer, const SendOptions& options, base::Instant now);
  void transmit(OutgoingMessage& message, base::Instant now, Transmission& out);
  bool asks_for_report(const OutgoingMessage& message);
  void expect_answer(OutgoingMessage& message, base::Instant now);
  void look_for_stall(OutgoingMessage& message, base::Instant now);
  // Out of its line, into another state.
  void take_off(OutgoingMessage& message, OutgoingState next);
  void drop(std::uint32_t slot);
  void finish(std::uint32_t slot, Outcome outcome, std::uint32_t delivered);

  Core& core_;
  MessageTable<OutgoingMessage> messages_;
  std::uint32_t ready_mask_ = 0;  // bit per priority whose list has entries
  std::array<ReadyList, SPILLWAY_PRIORITIES> ready_;
};

}  // namespace spillway::transport
