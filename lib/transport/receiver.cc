// SPDX-License-Identifier: Apache-2.0
#include "transport/receiver.h"

#include <algorithm>
#include <string>

#include "base/check.h"

namespace spillway::transport {
namespace {

constexpr double kLingerFactor = 2.0;
// A sender that claims more transmissions of one message than this is not believed.
constexpr std::uint32_t kMaxTransmissions = 1U << 30;

// From what quick hosts need to what slow ones need, limited by a peer's window.
CreditPacer::Depths depths_of(const EndpointConfig& config) {
  constexpr base::Duration kLeast = base::microseconds(10);
  const base::Duration window =
      transmission_time(config.exchange.window.initial, config.exchange.receive_rate);
  return {kLeast, std::max(kLeast, window)};
}

// UDP payload. Without real bytes a cut packet cannot be told from a whole one.
std::int64_t arrived_bytes(const DataArrival& arrival) {
  return arrival.packet != nullptr ? static_cast<std::int64_t>(arrival.bytes.size())
                                   : arrival.sent_bytes;
}

}  // namespace

Receiver::Receiver(Core& core)
    : core_(core),
      messages_(core.config.limits.incoming_messages + core.config.limits.finished_kept),
      early_(core.config.limits.early_bytes),
      pacer_(core.config.exchange.receive_rate, core.config.exchange.trimmed_target,
             depths_of(core.config)) {}

base::Status Receiver::check(const ReceiveOptions& options) const {
  if (options.packets == 0 || options.packets > SPILLWAY_MAX_PACKETS || options.packet_bytes == 0 ||
      options.packet_bytes > SPILLWAY_MAX_PACKET) {
    return base::invalid_argument("a message has 1 to " + std::to_string(SPILLWAY_MAX_PACKETS) +
                                  " packets of 1 to " + std::to_string(SPILLWAY_MAX_PACKET) +
                                  " bytes");
  }
  if (options.planes == 0 || options.planes > SPILLWAY_MAX_PLANES || options.loss.min_planes == 0 ||
      options.loss.min_planes > options.planes) {
    return base::invalid_argument("min_planes (" + std::to_string(options.loss.min_planes) +
                                  ") goes from 1 to the planes of a whole packet (" +
                                  std::to_string(options.planes) + ")");
  }
  if (options.priority >= SPILLWAY_PRIORITIES) {
    return base::invalid_argument("priority goes from 0 to 7");
  }
  return {};
}

base::Status Receiver::expect(const ReceiveOptions& options, base::Instant now) {
  if (base::Status status = check(options); !status.ok()) {
    return status;
  }
  const base::Result<Peer*> living = core_.find_living(options.id.source);
  if (!living.ok()) {
    return living.status();
  }
  Peer* peer = *living;
  if (find(options.id, *peer) != nullptr || ended_.find(options.id) != nullptr ||
      core_.is_over(options.id, *peer)) {
    return base::invalid_argument("this message of rank " + std::to_string(options.id.source) +
                                  " was expected before; every message has its own operation, "
                                  "signature, piece and phase");
  }
  if (active_ == core_.config.limits.incoming_messages || messages_.is_full()) {
    return {
        base::StatusCode::kLimitExceeded,
        "all " + std::to_string(active_) + " incoming messages are in use; wait for some to end"};
  }
  const std::uint32_t slot = messages_.insert({options.id, options.id.source});
  IncomingMessage& message = messages_[slot];
  message.id = options.id;
  message.slot = slot;
  message.peer = peer;
  message.state.enter(IncomingState::kExpected);
  message.packets = options.packets;
  message.packet_bytes = options.packet_bytes;
  message.may_be_shorter = options.may_be_shorter;
  message.priority = options.priority;
  message.loss = options.loss;
  message.carrier = peer->is_stream ? Carrier::kStream : options.carrier;
  if (message.is_streamed()) {
    ++peer->streamed_in;
    message.loss.loss_bound_ppm = 0;  // all of it comes, so it is waited for
  }
  message.sink = options.sink;
  message.ledger = PacketLedger(options.packets, options.planes, options.loss.min_planes);
  core_.await(*peer, now);
  ++peer->incoming;
  ++active_;
  if (options.deadline) {
    message.deadline = now + *options.deadline;
    arm(slot, message.deadline);
  }
  if (early_.is_on()) {
    take_early(options.id, *peer, now);
  } else if (peer->sent_early) {
    // The sender may be waiting for us.
    message.owed.add(Owed::kPing);
    queue_report(slot);
  }
  return {};
}

// Handles kept packets as if they came now, and tells the sender, which may be waiting.
void Receiver::take_early(const wire::MessageId& id, Peer& peer, base::Instant now) {
  const std::optional<EarlyMessage> kept = early_.take(id);
  if (!kept) {
    return;
  }
  IncomingMessage& message = *find(id, peer);
  message.owed.add(Owed::kCredit);
  queue_report(message.slot);
  if (kept->probe) {
    on_probe(*kept->probe, peer, now);
  }
  for (const EarlyMessage::Data& data : kept->data) {
    if (message.is_open() && data.arrival.stamp.packet < message.packets) {
      take(message, data.view(), now);
    }
  }
}

void Receiver::cancel(const wire::MessageId& id, base::Instant now) {
  Peer* peer = core_.peers.find(id.source);
  const IncomingMessage* message = peer == nullptr ? nullptr : find(id, *peer);
  if (message != nullptr && message->is_open()) {
    finish(message->slot, Outcome::kCancelled, now);
  }
}

void Receiver::withdraw(const wire::MessageId& id, base::Instant now) {
  Peer* peer = core_.peers.find(id.source);
  const IncomingMessage* message = peer == nullptr ? nullptr : find(id, *peer);
  if (message != nullptr && message->is_open()) {
    end(message->slot, Outcome::kCancelled, now);
  }
}

IncomingMessage* Receiver::find(const wire::MessageId& id, Peer& peer) {
  if (peer.latest != nullptr && !peer.latest->is_free() && peer.latest->id == id) {
    return peer.latest;
  }
  const std::uint32_t slot = messages_.find({id, peer.rank});
  if (slot == kNoSlot) {
    return nullptr;
  }
  peer.latest = &messages_[slot];
  return peer.latest;
}

void Receiver::count_unexpected(const wire::MessageId& id, const Peer& peer) {
  if (core_.is_over(id, peer)) {
    ++core_.counters.finished;
  } else {
    ++core_.counters.early;
  }
}

void Receiver::complete(DataArrival& arrival, Peer& peer) {
  wire::DataStamp& stamp = arrival.stamp;
  const bool is_latest =
      peer.latest != nullptr && !peer.latest->is_free() && peer.latest->id.is_alike(stamp.message);
  const std::uint32_t slot =
      is_latest ? peer.latest->slot : messages_.find_alike({stamp.message, peer.rank});
  std::optional<std::uint64_t> signature;
  if (slot != kNoSlot) {
    const IncomingMessage& message = messages_[slot];
    signature = message.id.signature;
    // All packets but the last are equally long.
    if (stamp.packet + 1U < message.packets) {
      arrival.sent_bytes = message.packet_bytes;
      arrival.trimmed = arrival.bytes.size() < arrival.sent_bytes;
    }
  } else if (!stamp.is_signed) {
    signature = ended_.signature_of(stamp.message);
    signature = signature ? signature : early_.signature_of(stamp.message);
  }
  if (!stamp.is_signed && signature) {
    stamp.message.signature = *signature;
    stamp.is_signed = true;
  }
}

void Receiver::on_data(const DataArrival& arrival, Peer& peer, base::Instant now) {
  const wire::DataStamp& stamp = arrival.stamp;
  if (stamp.path > kStreamPath) {
    ++core_.counters.contradicting;
    return;
  }
  const bool is_first = stamp.path == kStreamPath ? number_on_stream(stamp, peer)
                                                  : number_datagram(arrival, peer, now);
  core_.counters.repeated += is_first ? 0 : 1;
  IncomingMessage* message = find(stamp.message, peer);
  if (is_first && stamp.path == kStreamPath) {
    core_.link_share.add_streamed(arrived_bytes(arrival));
  } else if (is_first) {
    watch_network(arrival, peer, message, now);
  }
  EndedMessage* ended = message == nullptr ? ended_.find(stamp.message) : nullptr;
  if (ended != nullptr) {
    ++core_.counters.finished;
    core_.counters.wasted_bytes += arrival.sent_bytes;
    queue_stop(*ended, stamp.message, 0, now);
    return;
  }
  if (message == nullptr) {
    take_unexpected(arrival, peer, now);
    return;
  }
  if (message->state == IncomingState::kEnded) {
    ++core_.counters.finished;
    core_.counters.wasted_bytes += arrival.sent_bytes;
    queue_stop(message->slot, now);
    return;
  }
  if (stamp.packet >= message->packets) {
    ++core_.counters.contradicting;
    return;
  }
  take(*message, arrival, now);
}

// Counts a datagram on its path; false if it was counted before.
bool Receiver::number_datagram(const DataArrival& arrival, Peer& peer, base::Instant now) {
  const wire::DataStamp& stamp = arrival.stamp;
  core_.senders += peer.intake.received() == core_.config.first_number ? 1 : 0;
  const bool is_first = peer.intake.add({.path = stamp.path,
                                         .number = stamp.number,
                                         .timestamp_us = stamp.timestamp_us,
                                         .marked = arrival.marked},
                                        now);
  core_.counters.marked += is_first && arrival.marked ? 1 : 0;
  core_.counters.trimmed += is_first && arrival.trimmed ? 1 : 0;
  peer.unreported += is_first ? 1 : 0;
  peer.book.on_numbered(peer.intake.sent());
  return is_first;
}

// The stream keeps the order, so a lower number is a replay.
bool Receiver::number_on_stream(const wire::DataStamp& stamp, Peer& peer) {
  if (stamp.number <= peer.stream_arrived) {
    return false;
  }
  peer.stream_arrived = stamp.number;
  peer.has_stream_news = true;
  return true;
}

// A packet of a message that has not begun here, or is over.
void Receiver::take_unexpected(const DataArrival& arrival, Peer& peer, base::Instant now) {
  const wire::DataStamp& stamp = arrival.stamp;
  peer.sent_early = true;
  count_unexpected(stamp.message, peer);
  if (!early_.is_on() || core_.is_over(stamp.message, peer)) {
    return;
  }
  const bool is_first = early_.keep(arrival, now);
  if (!stamp.is_signed) {
    return;  // the first packet, or a PROBE, will say which call it is of
  }
  if (is_first) {
    report_unexpected(stamp.message, /*contradicts=*/false);
  }
  // No credit bounds what comes over a stream.
  if (stamp.path == kStreamPath && early_.holds(stamp.message)) {
    core_.queue_reply({.kind = PendingControl::Kind::kReply,
                       .peer = peer.rank,
                       .reply = wire::ControlType::kWait,
                       .message = stamp.message});
  }
}

// Learns from the packet about the links that it took.
void Receiver::watch_network(const DataArrival& arrival, Peer& peer, const IncomingMessage* message,
                             base::Instant now) {
  const base::Duration queued =
      core_.link_share.add({.peer = peer.rank,
                            .bytes = arrived_bytes(arrival),
                            .transit_us = stamp_us(now) - arrival.stamp.timestamp_us},
                           now);
  const std::uint64_t missing = peer.intake.sent() - peer.intake.received();
  if (missing > peer.missing) {
    peer.window.on_lost(missing - peer.missing);
  }
  peer.missing = missing;
  const std::uint32_t bound_ppm = message == nullptr ? 0 : message->loss.loss_bound_ppm;
  peer.window.on_arrival({.bytes = arrival.sent_bytes,
                          .queued = queued,
                          .marked = arrival.marked,
                          .unusable = arrival.trimmed && message != nullptr && bound_ppm == 0},
                         static_cast<std::int64_t>(peer.book.unused() * peer.packet_bytes),
                         bound_ppm * 1e-6);
}

void Receiver::take(IncomingMessage& message, const DataArrival& arrival, base::Instant now) {
  Peer& peer = *message.peer;
  begin(message, now);
  if (!arrival.stamp.requires_some && !message.important) {
    message.important = 0;
  }
  message.stall.restart();
  message.all_sent |= arrival.stamp.last;
  if (arrival.stamp.path != kStreamPath) {
    steer_pacer(peer, arrival);
  }
  // A sink never sees a packet again that it has whole: a damaged copy cannot spoil it.
  const bool has_news = arrival.packet != nullptr && message.sink != nullptr &&
                        !message.ledger.is_whole(arrival.stamp.packet);
  unsigned planes = has_news
                        ? message.sink->take(*arrival.packet, arrival.bytes)
                        : std::max<unsigned>(arrival.planes, arrival.packet != nullptr ? 1 : 0);
  if (has_news && message.may_be_shorter && message.sink->packets() != 0 &&
      !agrees_on(message.sink->packets(), message)) {
    planes = 0;
  }
  if (planes == 0) {
    ++core_.counters.contradicting;
  } else {
    const bool is_important = arrival.stamp.importance == SPILLWAY_IMPORTANCE_REQUIRED;
    const std::uint32_t wanted = message.wanted();
    switch (message.ledger.record(arrival.stamp.packet, static_cast<std::uint8_t>(planes),
                                  is_important)) {
      case PacketLedger::Entry::kDuplicate:
        ++message.duplicates;
        ++core_.counters.duplicate;
        core_.counters.wasted_bytes += arrival.sent_bytes;
        break;
      case PacketLedger::Entry::kTooFew:
        ++core_.counters.too_few_planes;
        peer.intake.on_unusable(arrival.stamp.path, arrival.stamp.number);
        break;
      case PacketLedger::Entry::kNew:
      case PacketLedger::Entry::kImproved:
        // Only news is a sign of life: anybody may send a recorded packet once more.
        peer.last_heard = now;
        peer.has_spoken |= arrival.stamp.path != kStreamPath;
        ++core_.counters.data_taken;
        break;
    }
    peer.book.want_less(wanted - message.wanted());
  }
  // If credit is about to be granted, the report goes along with it.
  const std::uint32_t patience = peer.in_credit_queue ? 2 : 1;
  if (arrival.stamp.report || peer.unreported >= core_.config.exchange.report_packets * patience) {
    message.owed.add(Owed::kCredit);
    queue_report(message.slot);
  }
  finish_if_enough(message, now);
  if (message.is_open()) {
    expect_no_more(message, arrival.stamp, now);
  }
  if (!message.is_streamed()) {
    peer.priority = message.priority;
    queue_for_credit(peer);
  }
}

void Receiver::steer_pacer(const Peer& peer, const DataArrival& arrival) {
  pacer_.on_arrival(arrival.trimmed);
  if (arrival.marked) {
    pacer_.on_marked();
  } else if (peer.book.unused() == 0 && peer.book.wanted() > 1) {
    pacer_.on_starved();
  }
}

// Behind the last packet, only packets that another path delays are still in flight. So the
// receiver reports unasked: a sender that has to ask first waits longer than the slowest recent
// answer.
void Receiver::expect_no_more(IncomingMessage& message, const wire::DataStamp& stamp,
                              base::Instant now) {
  if (!stamp.last || stamp.retransmit || message.is_streamed()) {
    return;
  }
  message.transmitted = std::max(message.transmitted, message.packets);
  if (!message.has_reported_missing) {
    message.missing_due = now + core_.config.exchange.linger_min;
    arm(message.slot, message.missing_due);
  }
}

void Receiver::report_missing(IncomingMessage& message) {
  message.missing_due = kNever;
  if (!message.is_enough()) {
    message.has_reported_missing = true;
    message.owed.add(Owed::kBitmap);
    message.bitmap_next = 0;
    queue_report(message.slot);
  }
}

void Receiver::begin(IncomingMessage& message, base::Instant now) {
  if (message.state == IncomingState::kExpected) {
    message.state.enter(IncomingState::kArriving);
    message.first_arrival = now;
    message.peer->book.want(message.wanted());
    if (!message.is_streamed()) {
      message.peer->packet_bytes = message.packet_bytes;
    }
  }
}

// The sender tells how many packets the message has. False if that cannot be.
bool Receiver::agrees_on(std::uint32_t packets, IncomingMessage& message) {
  if (packets == message.packets) {
    message.may_be_shorter = false;
    return true;
  }
  const std::uint32_t wanted = message.wanted();
  if (!message.may_be_shorter || packets == 0 || packets > message.packets ||
      !message.ledger.shorten(packets)) {
    return false;
  }
  message.may_be_shorter = false;
  message.packets = packets;
  message.peer->book.want_less(wanted - message.wanted());
  return true;
}

void Receiver::on_probe(const wire::ControlPacket& packet, Peer& peer, base::Instant now) {
  // This holds whatever message the probe is about: packets sent and lost use up no credit.
  peer.book.on_settled(packet.probe.settled);
  queue_for_credit(peer);
  IncomingMessage* found =
      packet.message.source == packet.source ? find(packet.message, peer) : nullptr;
  EndedMessage* ended = found == nullptr && packet.message.source == packet.source
                            ? ended_.find(packet.message)
                            : nullptr;
  if (ended != nullptr) {
    ended->last_stop = base::Instant();  // asked for: answered at once
    queue_stop(*ended, packet.message, packet.generation, now);
    return;
  }
  if (found == nullptr) {
    peer.sent_early = true;
    const bool is_over = core_.is_over(packet.message, peer);
    if (!is_over) {
      report_unexpected(packet.message, /*contradicts=*/false);
      count_unexpected(packet.message, peer);
      if (early_.is_on() && packet.message.source == packet.source) {
        early_.keep(packet);
        if (packet.generation == 1) {
          return;  // an announcement: there will be time to answer
        }
      }
    }
    core_.queue_reply({.kind = PendingControl::Kind::kReply,
                       .peer = packet.source,
                       .reply = is_over ? wire::ControlType::kStop : wire::ControlType::kWait,
                       .message = packet.message,
                       .generation = packet.generation});
    if (is_over) {
      count_unexpected(packet.message, peer);
    }
    return;
  }
  IncomingMessage& message = *found;
  if (message.state == IncomingState::kEnded) {
    message.last_stop = base::Instant();  // asked for: answered at once
    queue_stop(message.slot, now);
    return;
  }
  if (!agrees_on(packet.probe.packets, message)) {
    ++core_.counters.contradicting;
    report_unexpected(packet.message, /*contradicts=*/true);
    return;
  }
  begin(message, now);
  message.important = packet.probe.important;
  const std::uint32_t transmitted =
      std::max(message.transmitted, std::min(packet.probe.transmitted, kMaxTransmissions));
  if (!message.is_streamed()) {
    check_for_stall(message, transmitted - message.transmitted, now);
  }
  message.transmitted = transmitted;
  message.all_sent |= packet.probe.all_sent;
  if (packet.generation > message.probe_generation) {
    message.probe_generation = packet.generation;
    message.owed.add(Owed::kCredit);
    peer.intake.refresh();
    peer.has_stream_news = peer.stream_arrived > core_.config.first_number;
    message.owed.remove(Owed::kBitmap);
    if (packet.probe.all_sent) {
      message.owed.add(Owed::kBitmap);
    }
    message.bitmap_next = 0;
    message.has_reported_missing = packet.probe.all_sent;
  }
  queue_report(message.slot);
  finish_if_enough(message, now);
  if (!message.is_streamed()) {
    peer.priority = message.priority;
    queue_for_credit(peer);
  }
}

// The sender lives, as its probe shows, and may have sent more.
void Receiver::check_for_stall(IncomingMessage& message, std::uint32_t newly_sent,
                               base::Instant now) {
  if (newly_sent > 0) {
    message.stall.on_sent(newly_sent, now, base::Instant());
  }
  if (core_.config.reports_stalls &&
      message.stall.detects_stall(now, base::Instant(), kReceiverStallAfter)) {
    core_.events.push_back(
        MessageStalled{.id = message.id,
                       .peer = message.peer->rank,
                       .side = StallSide::kReceiving,
                       .reason = reason_of(message.packets, message.packet_bytes),
                       .paths = core_.config.exchange.paths,
                       .packets = message.stall.packets(),
                       .datagram_bytes = message.packet_bytes});
  }
}

void Receiver::finish_if_enough(IncomingMessage& message, base::Instant now) {
  if (message.ledger.missing() == 0) {
    finish(message.slot, Outcome::kEverything, now);
    return;
  }
  // Packets that were not granted yet are missing by our own choice.
  const bool is_granted = message.all_sent || message.peer->book.covers_all();
  if (!message.is_enough() || !is_granted) {
    return;
  }
  const ExchangeConfig& exchange = core_.config.exchange;
  // Stragglers get twice the time that as many packets took so far.
  const auto elapsed = static_cast<double>((now - message.first_arrival).count());
  const double share =
      kLingerFactor * message.ledger.missing() / std::max(message.ledger.delivered(), 1U);
  const base::Duration usual = base::nanoseconds(static_cast<std::int64_t>(elapsed * share));
  const base::Duration linger =
      message.all_sent ? exchange.linger_min : std::max(exchange.linger_min, usual);
  if (message.state == IncomingState::kArriving) {
    message.state.enter(IncomingState::kLingering);
  }
  if (now + linger < message.linger_due) {
    message.linger_due = now + linger;
    arm(message.slot, message.linger_due);
  }
}

void Receiver::arm(std::uint32_t slot, base::Instant due) {
  IncomingMessage& message = messages_[slot];
  if (due < message.armed) {
    message.armed = due;
    core_.timers.arm({due, TimerKind::kIncoming, slot});
  }
}

void Receiver::on_timer(std::uint32_t slot, base::Instant now) {
  if (!messages_.is_live(slot) || !messages_[slot].is_open()) {
    return;
  }
  IncomingMessage& message = messages_[slot];
  if (now >= message.linger_due) {
    finish(slot, Outcome::kWithinBudget, now);
  } else if (now >= message.deadline) {
    finish(slot, message.is_enough() ? Outcome::kWithinBudget : Outcome::kDeadline, now);
  } else if (message.armed <= now) {
    if (now >= message.missing_due) {
      report_missing(message);
    }
    message.armed = kNever;
    const base::Instant due = std::min({message.linger_due, message.missing_due, message.deadline});
    if (due != kNever) {
      arm(slot, due);
    }
  }
}

void Receiver::report_unexpected(const wire::MessageId& id, bool contradicts) {
  if (core_.config.reports_unexpected) {
    core_.events.push_back(UnexpectedMessage{id, contradicts});
  }
}

void Receiver::finish(std::uint32_t slot, Outcome outcome, base::Instant now) {
  IncomingMessage& message = messages_[slot];
  message.delivered = message.ledger.delivered();
  core_.events.push_back(ReceiveReport{.id = message.id,
                                       .outcome = outcome,
                                       .packets = message.packets,
                                       .delivered = message.delivered,
                                       .whole = message.ledger.whole(),
                                       .important_expected = message.important.value_or(0),
                                       .important_delivered = message.ledger.important_delivered(),
                                       .duplicates = message.duplicates,
                                       .planes = message.ledger.take_planes()});
  end(slot, outcome, now);
}

// As finish(), but nothing is reported on this side.
void Receiver::end(std::uint32_t slot, Outcome outcome, base::Instant now) {
  IncomingMessage& message = messages_[slot];
  message.peer->book.want_less(message.wanted());
  message.state.enter(IncomingState::kEnded);
  message.outcome = outcome;
  --message.peer->incoming;
  message.peer->streamed_in -= message.is_streamed() ? 1 : 0;
  --active_;
  message.ledger = PacketLedger();
  message.sink = nullptr;
  message.owed.remove(Owed::kBitmap);
  finished_.push_back(slot);
  if (outcome != Outcome::kPeerDead) {
    message.owed.add(Owed::kCredit);  // carries the last path reports
    queue_stop(slot, now);
  }
  while (finished_.size() > core_.config.limits.finished_kept) {
    release_oldest();
  }
}

// Owners that number their operations lose nothing. For others, this operation and all before it
// count as over from now on.
void Receiver::release_oldest() {
  const std::uint32_t slot = finished_.front();
  finished_.pop_front();
  IncomingMessage& message = messages_[slot];
  Peer& peer = *message.peer;
  if (!core_.retired.is_used()) {
    peer.forgotten_before = std::max(peer.forgotten_before, message.id.operation + 1);
  } else if (!core_.is_over(message.id, peer)) {
    ended_.add(message.id, {.outcome = message.outcome,
                            .delivered = message.delivered,
                            .last_stop = message.last_stop});
  }
  message.state.enter(IncomingState::kFree);
  messages_.erase(slot);
}

void Receiver::move_to_stream(Peer& peer) {
  messages_.for_each([&](std::uint32_t slot) {
    IncomingMessage& message = messages_[slot];
    if (message.peer == &peer && message.is_open() && !message.is_streamed()) {
      peer.book.want_less(message.wanted());
      message.carrier = Carrier::kStream;
      ++peer.streamed_in;
    }
  });
}

void Receiver::end_messages_from(Peer& peer, base::Instant now) {
  messages_.for_each([&](std::uint32_t slot) {
    if (messages_[slot].peer == &peer && messages_[slot].is_open()) {
      finish(slot, Outcome::kPeerDead, now);
    }
  });
}

std::size_t Receiver::memory_bytes() {
  std::size_t bytes = messages_.memory_bytes();
  bytes += ended_.memory_bytes();
  messages_.for_each([&](std::uint32_t slot) { bytes += messages_[slot].ledger.packets(); });
  return bytes;
}

}  // namespace spillway::transport
