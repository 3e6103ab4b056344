// SPDX-License-Identifier: Apache-2.0
//
// What a receiver says to its senders: STOP, credit with reports of paths, the bitmap of what is
// missing; and when credit is granted.
#include <algorithm>

#include "transport/receiver.h"

namespace spillway::transport {
namespace {

// Of a credit timer, that is caught up on: more would come as a burst that no queue holds.
constexpr base::Duration kMostLateness = base::milliseconds(2);

}  // namespace

void Receiver::queue_stop(std::uint32_t slot, base::Instant now) {
  IncomingMessage& message = messages_[slot];
  // Data that was on its way when the message ended does not deserve a STOP per packet.
  if (message.last_stop > base::Instant() &&
      now - message.last_stop < core_.config.tuning.probe_min) {
    return;
  }
  message.last_stop = now;
  message.owes_stop = true;
  queue_answer(slot);
}

void Receiver::queue_answer(std::uint32_t slot) {
  IncomingMessage& message = messages_[slot];
  if (!message.is_queued) {
    message.is_queued = true;
    core_.control.push_back({.kind = ControlWork::Kind::kAnswer, .slot = slot});
  }
}

void Receiver::leave_queue(std::uint32_t slot) {
  if (messages_.is_live(slot)) {
    messages_[slot].is_queued = false;
  }
}

bool Receiver::owes_more(std::uint32_t slot) {
  if (!messages_.is_live(slot)) {
    return false;
  }
  const IncomingMessage& message = messages_[slot];
  return message.owes_stop || message.owes_bitmap || message.owes_credit;
}

bool Receiver::write_answer(std::uint32_t slot, wire::ControlPacket& packet, base::Instant now) {
  if (!owes_more(slot)) {
    return false;
  }
  IncomingMessage& message = messages_[slot];
  packet.destination = message.id.source;
  packet.message = message.id;
  packet.generation = message.probe_generation;
  if (message.owes_stop) {
    message.owes_stop = false;
    packet.type = wire::ControlType::kStop;
    packet.stop = {.outcome = message.outcome, .delivered = message.delivered};
    return true;
  }
  if (message.owes_credit) {
    Peer& peer = *message.peer;
    message.owes_credit = false;
    packet.type = wire::ControlType::kCredit;
    packet.credit.granted = message.granted;
    packet.credit.answer = message.wants_answer && !message.is_finished;
    message.wants_answer = false;
    peer.intake.report(now, packet.credit);
    peer.unreported = 0;
    return true;
  }
  packet.type = wire::ControlType::kBitmap;
  if (!message.ledger.next_missing_range(message.bitmap_next, packet.bitmap.range)) {
    message.owes_bitmap = false;
    return false;
  }
  message.bitmap_next = packet.bitmap.range.first + packet.bitmap.range.count;
  packet.bitmap.missing = message.ledger.missing();
  packet.bitmap.allowed = message.loss.allowed_missing(message.packets);
  return true;
}

std::uint32_t Receiver::grantable(const IncomingMessage& message) const {
  const EndpointTuning& tuning = core_.config.tuning;
  const auto window =
      static_cast<std::uint32_t>(tuning.credit_window.count() / message.packet_bytes);
  return message.grantable(std::max<std::uint32_t>(window, tuning.report_packets),
                           tuning.report_packets);
}

void Receiver::want_credit(IncomingMessage& message) {
  if (message.is_waiting_for_credit || grantable(message) == 0) {
    return;
  }
  message.is_waiting_for_credit = true;
  pacer_.enqueue(message.slot, message.priority);
  arm_pacer();
}

void Receiver::arm_pacer() {
  if (!pacer_.empty() && pacer_.next_grant() < pacer_armed_) {
    pacer_armed_ = pacer_.next_grant();
    core_.timers.arm({pacer_armed_, TimerKind::kCredit, 0});
  }
}

void Receiver::on_credit_timer(base::Instant now) {
  // Timers of real machines are late; what that cost is caught up on, or the link would idle.
  const base::Instant due = std::clamp(pacer_armed_, now - kMostLateness, now);
  pacer_armed_ = kNever;
  while (!pacer_.empty() && pacer_.next_grant() <= now) {
    const std::uint32_t slot = pacer_.take_turn();
    if (!messages_.is_live(slot)) {
      continue;
    }
    IncomingMessage& message = messages_[slot];
    message.is_waiting_for_credit = false;
    const std::uint32_t packets = grantable(message);
    if (packets == 0) {
      continue;
    }
    message.granted += packets;
    pacer_.granted(base::bytes(std::int64_t{packets} * (message.packet_bytes + kFrameOverhead)),
                   due);
    message.owes_credit = true;
    queue_answer(slot);
    want_credit(message);
  }
  arm_pacer();
}

void Receiver::ask_for_answer(Peer& peer) {
  if (peer.latest == nullptr || !peer.latest->is_live || peer.latest->is_finished ||
      peer.latest->peer != &peer) {
    messages_.for_each([&](std::uint32_t slot) {
      if (messages_[slot].peer == &peer && !messages_[slot].is_finished) {
        peer.latest = &messages_[slot];
      }
    });
  }
  IncomingMessage& message = *peer.latest;
  message.wants_answer = true;
  message.owes_credit = true;
  queue_answer(message.slot);
}

}  // namespace spillway::transport
