// SPDX-License-Identifier: Apache-2.0
//
// The receiver's messages to senders: STOP, credit with path reports, and the BITMAP of missing
// packets. Also decides when credit is granted, and holds the steps of an incoming message.
#include "transport/receiver.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace spillway::transport {

namespace {

// How late a credit timer may be for its grants to be caught up on: more would be a burst that no
// queue holds.
constexpr base::Duration kMaxLateness = base::milliseconds(2);
// Least standing credit of a peer, however many there are: a short message goes at once.
constexpr base::Bytes kLeastStanding = base::bytes(8 * 1024);

}  // namespace

void Receiver::queue_stop(std::uint32_t slot, base::Instant now) {
  IncomingMessage& message = messages_[slot];
  // Data that was in flight when the message ended does not deserve a STOP per packet.
  if (message.last_stop > base::Instant() &&
      now - message.last_stop < core_.config.exchange.probe_min) {
    return;
  }
  message.last_stop = now;
  message.owed.add(Owed::kStop);
  queue_report(slot);
}

// The same for a message of which only the end is remembered.
void Receiver::queue_stop(EndedMessage& ended, const wire::MessageId& id, std::uint32_t generation,
                          base::Instant now) {
  if (ended.last_stop > base::Instant() &&
      now - ended.last_stop < core_.config.exchange.probe_min) {
    return;
  }
  ended.last_stop = now;
  core_.queue_reply({.kind = PendingControl::Kind::kReply,
                     .peer = id.source,
                     .reply = wire::ControlType::kStop,
                     .message = id,
                     .generation = generation,
                     .stop = {.outcome = ended.outcome, .delivered = ended.delivered}});
}

void Receiver::queue_report(std::uint32_t slot) {
  IncomingMessage& message = messages_[slot];
  if (!message.in_control_queue) {
    message.in_control_queue = true;
    core_.control.push_back({.kind = PendingControl::Kind::kReport, .slot = slot});
  }
}

void Receiver::leave_queue(std::uint32_t slot) {
  if (messages_.is_live(slot)) {
    messages_[slot].in_control_queue = false;
  }
}

bool Receiver::has_more_reports(std::uint32_t slot) {
  return messages_.is_live(slot) && !messages_[slot].owed.empty();
}

bool Receiver::write_report(std::uint32_t slot, wire::ControlPacket& packet, base::Instant now) {
  if (!has_more_reports(slot)) {
    return false;
  }
  IncomingMessage& message = messages_[slot];
  packet.destination = message.id.source;
  packet.message = message.id;
  packet.generation = message.probe_generation;
  if (message.owed.take(Owed::kStop)) {
    packet.type = wire::ControlType::kStop;
    packet.stop = {.outcome = message.outcome, .delivered = message.delivered};
    return true;
  }
  if (message.owed.take(Owed::kCredit)) {
    Peer& peer = *message.peer;
    packet.type = wire::ControlType::kCredit;
    packet.credit.granted = static_cast<std::uint32_t>(peer.book.granted());
    packet.credit.answer = message.owed.take(Owed::kPing) && message.is_open();
    packet.credit.path_count = 0;
    if (std::exchange(peer.has_stream_news, false)) {
      spillway_path_report& report = packet.credit.paths[packet.credit.path_count++];
      report = {};
      report.path = kStreamPath;
      report.echo_number = static_cast<std::uint32_t>(peer.stream_arrived);
    }
    peer.intake.report(now, packet.credit);
    peer.unreported = 0;
    return true;
  }
  packet.type = wire::ControlType::kBitmap;
  if (!message.ledger.next_missing_range(message.bitmap_next, packet.bitmap.range)) {
    message.owed.remove(Owed::kBitmap);
    return false;
  }
  message.bitmap_next = packet.bitmap.range.first + packet.bitmap.range.count;
  packet.bitmap.missing = message.ledger.missing();
  packet.bitmap.allowed = message.loss.allowed_missing(message.packets);
  return true;
}

// A peer that is only received from, as in a ring, is assumed to be as far away as others are.
const RoundTrip& Receiver::way_to(const Peer& peer) const {
  return peer.round_trip.is_known() ? peer.round_trip : core_.round_trip;
}

// Peers that begin to send all at once, without asking, fill the link: with half a round trip to
// spare, because credit comes back in quanta. Room for early packets is limited: while it is
// filling, there is no such credit.
std::uint32_t Receiver::standing_credit(const Peer& peer) const {
  if (early_.is_filling()) {
    return 0;
  }
  const ExchangeConfig& exchange = core_.config.exchange;
  const base::Bytes in_round_trip = base::carried_in(way_to(peer).least(), exchange.receive_rate);
  const base::Bytes together = std::max(in_round_trip * 3 / 2, exchange.unsolicited);
  const auto senders = static_cast<std::int64_t>(std::max(core_.senders, 1U));
  return packets_in(std::max(together / senders, kLeastStanding), core_.config);
}

std::uint32_t Receiver::grantable(Peer& peer) const {
  if (!peer.knows_round_trip && core_.round_trip.is_known()) {
    peer.window.learn(way_to(peer).least(), core_.config.exchange.receive_rate);
    peer.knows_round_trip = true;
  }
  return peer.book.grantable(standing_credit(peer),
                             packets_in(base::bytes(peer.window.bytes()), core_.config),
                             core_.config.exchange.report_packets);
}

void Receiver::queue_for_credit(Peer& peer) {
  if (peer.in_credit_queue) {
    if (peer.priority > peer.credit_priority) {
      pacer_.raise(peer.rank, peer.credit_priority, peer.priority);
      peer.credit_priority = peer.priority;
    }
    return;
  }
  if (grantable(peer) == 0) {
    return;
  }
  peer.in_credit_queue = true;
  peer.credit_priority = peer.priority;
  pacer_.enqueue(peer.rank, peer.priority);
  arm_pacer();
}

// The credit goes with the latest message, whatever its state: that has a place in the control
// queue.
void Receiver::queue_credit(Peer& peer) {
  if (peer.latest != nullptr && !peer.latest->is_free() && peer.latest->peer == &peer) {
    peer.latest->owed.add(Owed::kCredit);
    queue_report(peer.latest->slot);
  } else {
    core_.queue_reply({.kind = PendingControl::Kind::kReply,
                       .peer = peer.rank,
                       .reply = wire::ControlType::kCredit,
                       .message = {.source = peer.rank}});
  }
}

void Receiver::arm_pacer() {
  if (!pacer_.empty() && pacer_.next_grant() < pacer_armed_) {
    pacer_armed_ = pacer_.next_grant();
    core_.timers.arm({pacer_armed_, TimerKind::kCredit, 0});
  }
}

void Receiver::on_credit_timer(base::Instant now) {
  // Timers of real machines are late; that is caught up on, or the link would idle.
  const base::Instant due = std::clamp(pacer_armed_, now - kMaxLateness, now);
  pacer_armed_ = kNever;
  while (!pacer_.empty() && pacer_.next_grant() <= now) {
    Peer& peer = *core_.peers.find(static_cast<std::uint16_t>(pacer_.take_turn()));
    peer.in_credit_queue = false;
    const std::uint32_t packets = peer.dead ? 0 : grantable(peer);
    if (packets == 0) {
      continue;
    }
    peer.book.grant(packets);
    pacer_.granted(base::bytes(std::int64_t{packets} * (peer.packet_bytes + kFrameOverhead)), due);
    queue_credit(peer);
    queue_for_credit(peer);
  }
  arm_pacer();
}

void Receiver::ping(Peer& peer) {
  if (peer.latest == nullptr || !peer.latest->is_open() || peer.latest->peer != &peer) {
    messages_.for_each([&](std::uint32_t slot) {
      if (messages_[slot].peer == &peer && messages_[slot].is_open()) {
        peer.latest = &messages_[slot];
      }
    });
  }
  IncomingMessage& message = *peer.latest;
  message.owed.add(Owed::kPing);
  queue_report(message.slot);
}

PacketLedger::Entry PacketLedger::record(std::uint32_t packet, std::uint8_t planes,
                                         bool is_important) {
  SPILLWAY_CHECK(packet < packets() && planes > 0);
  const std::uint8_t before = planes_[packet];
  if (planes <= before) {
    return before >= min_planes_ ? Entry::kDuplicate : Entry::kTooFew;
  }
  planes_[packet] = planes;
  whole_ += planes >= planes_sent_ ? 1 : 0;
  if (planes < min_planes_) {
    return Entry::kTooFew;
  }
  if (before >= min_planes_) {
    return Entry::kImproved;
  }
  ++delivered_;
  important_ += is_important ? 1 : 0;
  return Entry::kNew;
}

bool PacketLedger::next_missing_range(std::uint32_t from, wire::BitmapRange& range) const {
  const auto is_missing = [this](std::uint8_t planes) { return planes < min_planes_; };
  const auto first =
      std::find_if(planes_.begin() + std::min(from, packets()), planes_.end(), is_missing);
  if (first == planes_.end()) {
    return false;
  }
  range.first = static_cast<std::uint32_t>(first - planes_.begin());
  range.count = std::min<std::uint32_t>(packets() - range.first, SPILLWAY_MAX_BITMAP_BYTES * 8);
  std::fill_n(range.bits.begin(), (range.count + 7) / 8, std::uint8_t{0});
  for (std::uint32_t bit = 0; bit < range.count; ++bit) {
    if (is_delivered(range.first + bit)) {
      range.bits[bit / 8] |= static_cast<std::uint8_t>(1U << (bit % 8));
    }
  }
  return true;
}

EarlyMessage* EarlyArrivals::find(const wire::MessageId& id, bool is_signed) {
  const auto found = std::find_if(
      messages_.rbegin(), messages_.rend(),
      [&](const EarlyMessage& each) { return each.is_signed == is_signed && each.id == id; });
  return found == messages_.rend() ? nullptr : &*found;
}

bool EarlyArrivals::holds(const wire::MessageId& id) {
  EarlyMessage* kept = is_filling() ? find(id, /*is_signed=*/true) : nullptr;
  return kept != nullptr && !std::exchange(kept->is_held, true);
}

std::optional<std::uint64_t> EarlyArrivals::signature_of(const wire::MessageId& id) const {
  const auto found = std::find_if(
      messages_.rbegin(), messages_.rend(),
      [&](const EarlyMessage& each) { return each.is_signed && each.id.is_alike(id); });
  return found == messages_.rend() ? std::nullopt : std::optional(found->id.signature);
}

EarlyMessage& EarlyArrivals::message(const wire::MessageId& id, bool is_signed) {
  if (EarlyMessage* found = find(id, is_signed); found != nullptr) {
    return *found;
  }
  EarlyMessage& added = messages_.emplace_back();
  added.id = id;
  added.is_signed = is_signed;
  return added;
}

void EarlyArrivals::add(EarlyMessage& message, std::size_t bytes) {
  message.kept_bytes += bytes;
  kept_bytes_ += bytes;
  while (kept_bytes_ > max_bytes_) {
    kept_bytes_ -= messages_.front().kept_bytes;
    messages_.pop_front();
  }
}

bool EarlyArrivals::keep(const DataArrival& arrival, base::Instant now) {
  if (arrival.bytes.size() + kEntryBytes > max_bytes_) {
    return false;
  }
  EarlyMessage& kept = message(arrival.stamp.message, arrival.stamp.is_signed);
  const bool is_first = kept.data.empty() && !kept.probe;
  EarlyMessage::Data& data = kept.data.emplace_back();
  data.arrival = arrival;
  data.at = now;
  if (arrival.packet != nullptr) {
    data.packet = *arrival.packet;
  }
  data.bytes.assign(arrival.bytes.begin(), arrival.bytes.end());
  add(kept, kEntryBytes + data.bytes.size());
  return is_first;
}

void EarlyArrivals::keep(const wire::ControlPacket& probe) {
  if (sizeof(probe) > max_bytes_) {
    return;
  }
  EarlyMessage& kept = message(probe.message, /*is_signed=*/true);
  const bool is_first = !kept.probe;
  kept.probe = probe;
  if (is_first) {
    add(kept, sizeof(probe));
  }
}

std::optional<EarlyMessage> EarlyArrivals::take(const wire::MessageId& id) {
  std::optional<EarlyMessage> taken;
  for (auto each = messages_.begin(); each != messages_.end();) {
    if (each->is_signed ? each->id != id : !each->id.is_alike(id)) {
      ++each;
      continue;
    }
    kept_bytes_ -= each->kept_bytes;
    if (!taken) {
      taken = std::move(*each);
    } else {
      std::move(each->data.begin(), each->data.end(), std::back_inserter(taken->data));
      taken->probe = taken->probe ? taken->probe : each->probe;
    }
    each = messages_.erase(each);
  }
  return taken;
}

}  // namespace spillway::transport
