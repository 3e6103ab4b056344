// SPDX-License-Identifier: Apache-2.0
#include "transport/sender.h"

#include <algorithm>
#include <string>

#include "base/check.h"

namespace spillway::transport {

namespace {

// Below this share, missing packets are late rather than lost.
constexpr double kRareLoss = 0.001;
// Waits are learned up to here: a longer one means a stall and says nothing about the next time.
constexpr base::Duration kLongestTurn = base::milliseconds(20);
// Without credit, one in so many packets asks for a report.
constexpr std::uint32_t kPacketsPerAsking = 4;
// The lost share is averaged over this many packets.
constexpr double kLossMemory = 256.0;
// After so many probes of a message, its repairs no longer go before newer messages.
constexpr std::uint32_t kUrgentRepairs = 4;
// Data in flight for this many times the usual wait is lost.
constexpr int kExpiryWaits = 2;
// First wait for a report of a message on a stream, which may hold its packets long and loses none.
constexpr base::Duration kStreamWait = base::milliseconds(20);

std::uint32_t required_packets(const SendOptions& options) {
  if (options.packet_importance.empty()) {
    return options.importance == SPILLWAY_IMPORTANCE_REQUIRED ? options.packets : 0;
  }
  return static_cast<std::uint32_t>(std::count(options.packet_importance.begin(),
                                               options.packet_importance.end(),
                                               SPILLWAY_IMPORTANCE_REQUIRED));
}

}  // namespace

Sender::Sender(Core& core) : core_(core), messages_(core.config.limits.outgoing_messages) {}

base::Status Sender::check(const SendOptions& options) const {
  if (options.packets == 0 || options.packets > SPILLWAY_MAX_PACKETS) {
    return base::invalid_argument("a message has 1 to " + std::to_string(SPILLWAY_MAX_PACKETS) +
                                  " packets, not " + std::to_string(options.packets) +
                                  "; split the tensor into more pieces");
  }
  if (options.packet_bytes == 0 || options.packet_bytes > SPILLWAY_MAX_PACKET) {
    return base::invalid_argument("packets have 1 to " + std::to_string(SPILLWAY_MAX_PACKET) +
                                  " bytes, not " + std::to_string(options.packet_bytes));
  }
  if (options.priority >= SPILLWAY_PRIORITIES ||
      options.importance > SPILLWAY_IMPORTANCE_REQUIRED) {
    return base::invalid_argument("priority and importance go from 0 to 7");
  }
  if (options.id.source != core_.config.rank) {
    return base::invalid_argument("rank " + std::to_string(core_.config.rank) +
                                  " cannot send a message whose source is rank " +
                                  std::to_string(options.id.source));
  }
  if (!options.packet_importance.empty() && options.packet_importance.size() != options.packets) {
    return base::invalid_argument("packet_importance needs one entry per packet, or none");
  }
  if (std::any_of(options.packet_importance.begin(), options.packet_importance.end(),
                  [](std::uint8_t level) { return level > SPILLWAY_IMPORTANCE_REQUIRED; })) {
    return base::invalid_argument("priority and importance go from 0 to 7");
  }
  return {};
}

base::Status Sender::send(const SendOptions& options, base::Instant now) {
  if (base::Status status = check(options); !status.ok()) {
    return status;
  }
  const base::Result<Peer*> peer = core_.find_living(options.to);
  if (!peer.ok()) {
    return peer.status();
  }
  const MessageKey key{options.id, options.to};
  if (messages_.find(key) != kNoSlot) {
    return base::invalid_argument("this message is already under way to rank " +
                                  std::to_string(options.to));
  }
  if (messages_.is_full()) {
    return {base::StatusCode::kLimitExceeded,
            "all " + std::to_string(messages_.size()) +
                " outgoing messages are in use; wait for some to end"};
  }
  if ((*peer)->has_left) {
    // The peer was done, so it needs nothing.
    core_.events.push_back(SendReport{.id = options.id,
                                      .to = options.to,
                                      .outcome = Outcome::kEverything,
                                      .packets = options.packets,
                                      .delivered = 0,
                                      .transmitted = 0});
    return {};
  }
  begin(messages_.insert(key), **peer, options, now);
  return {};
}

void Sender::begin(std::uint32_t slot, Peer& peer, const SendOptions& options, base::Instant now) {
  OutgoingMessage& message = messages_[slot];
  message.id = options.id;
  message.slot = slot;
  message.queue_number = ++queue_numbers_;
  message.serial = static_cast<std::uint8_t>(queue_numbers_);
  message.peer = &peer;
  message.packets = options.packets;
  message.packet_bytes = options.packet_bytes;
  message.carrier = peer.is_stream ? Carrier::kStream : options.carrier;
  message.priority = options.priority;
  message.importance = options.importance;
  message.loss = options.loss;
  message.source = options.source;
  message.packet_importance.assign(options.packet_importance.begin(),
                                   options.packet_importance.end());
  message.important = required_packets(options);
  message.order = SendOrder(options.packets);
  message.probe_wait = first_wait(message);
  if (options.id.phase == wire::Phase::kPointToPoint) {
    peer.point_to_point_sent = std::max(peer.point_to_point_sent, options.id.operation);
  }
  core_.await(peer, now);
  ++peer.outgoing;
  if (message.is_streamed()) {
    ++peer.streamed_out;
  } else {
    peer.longest_packet = std::max(peer.longest_packet, options.packet_bytes);
    peer.unsent += message.packets;
  }
  if (needs_announcement(message)) {
    queue_probe(slot);
  }
  enqueue(message);
  probe_after(slot, message.probe_wait, now);
}

// Data announces a message by itself. But the receiver must learn how many packets are required,
// and of messages for which it has to grant credit.
bool Sender::needs_announcement(const OutgoingMessage& message) const {
  const Peer& peer = *message.peer;
  return message.important > 0 || (!message.is_streamed() && peer.balance.unused() < peer.unsent);
}

std::uint32_t Sender::find(const wire::ControlPacket& packet) const {
  return packet.message.source == core_.config.rank
             ? messages_.find({packet.message, packet.source})
             : kNoSlot;
}

base::Duration Sender::report_timeout(const Peer& peer) const {
  const ExchangeConfig& exchange = core_.config.exchange;
  base::Duration patience = peer.round_trip.timeout();
  // Credit spent on lost packets comes back only with a PROBE. Where none are lost, credit takes as
  // long as it usually does.
  if (peer.lost_share < kRareLoss) {
    patience = std::max(patience, peer.credit_wait.timeout());
  }
  return std::clamp(patience, exchange.probe_min, exchange.probe_max);
}

base::Duration Sender::first_wait(const OutgoingMessage& message) const {
  const base::Duration usual = report_timeout(*message.peer);
  return message.is_streamed() ? std::max(usual, kStreamWait) : usual;
}

void Sender::enqueue(OutgoingMessage& message) {
  if (message.state == OutgoingState::kWaiting && message.may_go()) {
    scheduler(message.carrier).join(message);
  }
}

// True if the message waits only for its turn or its stream, neither for credit nor for an answer.
bool Sender::waits_for_its_turn(const OutgoingMessage& message) const {
  const SendLine& line = message.line();
  return message.state == OutgoingState::kQueued &&
         (message.is_streamed() || line.turn == Turn::kReady || line.messages.front() != &message);
}

void Sender::queue_probe(std::uint32_t slot) {
  OutgoingMessage& message = messages_[slot];
  if (!message.in_control_queue) {
    message.in_control_queue = true;
    core_.control.push_back({.kind = PendingControl::Kind::kProbe, .slot = slot});
  }
}

void Sender::probe_after(std::uint32_t slot, base::Duration wait, base::Instant now) {
  OutgoingMessage& message = messages_[slot];
  message.probe_due = now + wait;
  if (message.probe_armed <= now || message.probe_due < message.probe_armed) {
    message.probe_armed = message.probe_due;
    core_.timers.arm({message.probe_due, TimerKind::kOutgoing, slot});
  }
}

void Sender::on_timer(std::uint32_t slot, base::Instant now) {
  if (!messages_.is_live(slot)) {
    return;
  }
  OutgoingMessage& message = messages_[slot];
  if (now < message.probe_due) {
    if (message.probe_armed <= now) {
      probe_after(slot, message.probe_due - now, now);
    }
    return;
  }
  if (waits_for_its_turn(message)) {
    probe_after(slot, message.probe_wait, now);
    return;
  }
  if (!message.is_streamed()) {
    give_up_silent(*message.peer, now);
    check_for_stall(message, now);
  }
  queue_probe(slot);
  probe_after(slot, message.probe_wait, now);
  message.probe_wait = std::min(message.probe_wait * 2, core_.config.exchange.probe_max);
}

// Data in flight for so long will not arrive.
void Sender::give_up_silent(Peer& peer, base::Instant now) {
  PathNews news;
  peer.paths.expire(now - report_timeout(peer) * kExpiryWaits, now, news);
  take_losses(news, peer);
  if (now - peer.last_sent >= report_timeout(peer)) {
    peer.balance.on_silence();
    peer.has_asked_for_credit = true;
  }
  scheduler(Carrier::kDatagrams).unblock(peer.line(Carrier::kDatagrams));
}

bool Sender::write_probe(std::uint32_t slot, wire::ControlPacket& packet) {
  if (!messages_.is_live(slot) || !messages_[slot].in_control_queue) {
    return false;
  }
  OutgoingMessage& message = messages_[slot];
  message.in_control_queue = false;
  packet.type = wire::ControlType::kProbe;
  packet.destination = message.peer->rank;
  packet.message = message.id;
  packet.generation = ++message.generation;
  packet.probe = {.packets = message.packets,
                  .important = message.important,
                  .transmitted = message.transmitted,
                  .settled = static_cast<std::uint32_t>(message.peer->balance.settled()),
                  .all_sent = message.all_sent()};
  ++core_.counters.probes_sent;
  return true;
}

void Sender::on_stop(const wire::ControlPacket& packet, base::Instant now) {
  const std::uint32_t slot = find(packet);
  if (slot == kNoSlot) {
    return;
  }
  const OutgoingMessage& message = messages_[slot];
  // On a stream the wait for a lost STOP is no sample: it would delay the question for the next.
  const bool was_asked = message.is_streamed() && message.generation > 0;
  if (message.all_sent() && message.repaired.empty() && !was_asked) {
    message.line().end_wait.add(std::min(now - message.last_sent, kLongestTurn));
  }
  finish(slot, packet.stop.outcome, std::min(packet.stop.delivered, message.packets));
}

void Sender::on_bitmap(const wire::ControlPacket& packet, base::Instant now) {
  const std::uint32_t slot = find(packet);
  if (slot == kNoSlot) {
    return;
  }
  OutgoingMessage& message = messages_[slot];
  if (packet.generation != message.generation || packet.bitmap.range.first >= message.packets) {
    ++core_.counters.contradicting;  // answers an older probe and is out of date
    return;
  }
  message.is_paused = false;
  if (packet.bitmap.missing < message.least_missing) {
    message.least_missing = packet.bitmap.missing;
    message.stall.restart();
  }
  // A BITMAP overtakes what is on its way over the stream.
  const bool can_tell =
      !message.is_streamed() || message.stream_number <= message.peer->stream_confirmed;
  if (message.next_position == message.packets && can_tell) {
    message.on_bitmap(packet, now - message.peer->round_trip.timeout());
    // It may have been in line with repairs that are forgiven now.
    if (message.state == OutgoingState::kQueued && !message.may_go()) {
      scheduler(message.carrier).leave(message);
    }
    // A message that cannot be repaired must not hold up the others for ever.
    if (message.generation >= kUrgentRepairs && message.state == OutgoingState::kWaiting) {
      message.queue_number = ++queue_numbers_;
    }
    message.probe_wait = first_wait(message);
    probe_after(slot, message.probe_wait, now);
  }
  enqueue(message);
}

void Sender::on_credit(const wire::ControlPacket& packet, Peer& peer, base::Instant now) {
  peer.sent_since_asking = 0;
  SendLine& line = peer.line(Carrier::kDatagrams);
  const bool has_news = take_path_reports(packet, peer, now);
  const bool was_without = !peer.balance.has_credit();
  const bool has_more_credit = peer.balance.on_granted(packet.credit.granted);
  if (has_more_credit && was_without && !line.messages.empty() && !peer.has_asked_for_credit) {
    peer.credit_wait.add(std::min(now - peer.last_sent, kLongestTurn));
  }
  scheduler(Carrier::kDatagrams).unblock(line);
  if ((has_news || has_more_credit) && !line.messages.empty()) {
    // Whatever message it names: the first in line asks for all of them.
    OutgoingMessage& first = *line.messages.front();
    first.probe_wait = report_timeout(peer);
    probe_after(first.slot, first.probe_wait, now);
  }
  const std::uint32_t slot = find(packet);
  if (slot == kNoSlot) {
    if (packet.credit.answer && packet.message.source == core_.config.rank) {
      core_.queue_reply({.kind = PendingControl::Kind::kReply,
                         .peer = packet.source,
                         .reply = wire::ControlType::kWait,
                         .message = packet.message});
    }
    return;
  }
  OutgoingMessage& message = messages_[slot];
  const bool was_paused = message.is_paused;
  message.is_paused = false;
  if (has_news || has_more_credit) {
    message.probe_wait = first_wait(message);
    if (message.has_packet()) {
      probe_after(slot, message.probe_wait, now);
    }
  }
  if (packet.credit.answer || was_paused) {
    queue_probe(slot);
  }
  enqueue(message);
}

void Sender::on_wait(const wire::ControlPacket& packet, base::Instant now) {
  const std::uint32_t slot = find(packet);
  if (slot == kNoSlot) {
    return;
  }
  OutgoingMessage& message = messages_[slot];
  message.is_paused = true;
  message.stall.restart();
  if (message.state == OutgoingState::kQueued) {
    scheduler(message.carrier).leave(message);
  }
  if (core_.config.limits.early_bytes == 0) {
    // The receiver dropped all that was sent so far, so all of it waits until the receiver is
    // ready.
    message.peer->unsent += message.is_streamed() ? 0 : message.next_position;
    message.start_over();
  }
  probe_after(slot, message.probe_wait, now);
}

bool Sender::take_path_reports(const wire::ControlPacket& packet, Peer& peer, base::Instant now) {
  PathNews news;
  for (std::size_t i = 0; i < packet.credit.path_count; ++i) {
    const spillway_path_report& report = packet.credit.paths[i];
    if (report.path == kStreamPath) {
      const std::uint64_t newest = wire::widen(report.echo_number, peer.stream_sent);
      peer.stream_confirmed = std::max(peer.stream_confirmed, std::min(newest, peer.stream_sent));
    } else if (!peer.paths.on_report(report, now, news)) {
      ++core_.counters.contradicting;
    }
  }
  if (peer.round_trip.is_known()) {
    peer.paths.expire(now - report_timeout(peer) * kExpiryWaits, now, news);
  }
  if (news.round_trip > base::Duration()) {
    peer.round_trip.add(news.round_trip);
    core_.round_trip.add(news.round_trip);
  }
  take_losses(news, peer);
  repair_gaps(news);
  // Short packets say nothing about what long ones meet.
  if (news.packets > 0 && news.longest * 2 >= peer.longest_packet) {
    peer.carried = now;
  }
  return news.packets > 0;
}

void Sender::take_losses(const PathNews& news, Peer& peer) {
  const double packets = news.packets + news.lost;
  if (packets == 0) {
    return;
  }
  peer.lost_share += std::min(1.0, packets / kLossMemory) * (news.lost / packets - peer.lost_share);
  const std::uint64_t retired_before = peer.retirements_seen;
  peer.retirements_seen = peer.paths.retirements();
  core_.counters.paths_retired += peer.retirements_seen - retired_before;
}

void Sender::repair_gaps(const PathNews& news) {
  for (const SentPacket& gap : news.gaps) {
    if (!messages_.is_live(gap.slot) || messages_[gap.slot].serial != gap.serial ||
        gap.packet >= messages_[gap.slot].packets) {
      continue;  // its message is over
    }
    messages_[gap.slot].on_gap(gap.packet);
    enqueue(messages_[gap.slot]);
  }
}

bool Sender::poll_data(base::Instant now, bool with_datagrams, Transmission& out) {
  SendLine* line = next_line(with_datagrams);
  if (line == nullptr) {
    return false;
  }
  transmit(*line, now, out);
  return true;
}

// The more urgent of the two carriers' lines; among equals, carriers take turns as lines do.
SendLine* Sender::next_line(bool with_datagrams) {
  SendLine* stream = scheduler(Carrier::kStream).front();
  SendLine* datagrams = with_datagrams ? scheduler(Carrier::kDatagrams).front() : nullptr;
  if (stream == nullptr || datagrams == nullptr) {
    return stream == nullptr ? datagrams : stream;
  }
  if (stream->turn_priority != datagrams->turn_priority) {
    return stream->turn_priority > datagrams->turn_priority ? stream : datagrams;
  }
  return next_carrier_ == Carrier::kStream ? stream : datagrams;
}

void Sender::transmit(SendLine& line, base::Instant now, Transmission& out) {
  OutgoingMessage& message = *line.messages.front();
  Peer& peer = *message.peer;
  if (line.burst_left == 0) {
    if (!message.is_streamed()) {
      peer.path = peer.paths.choose(now);
    }
    line.burst_left = core_.config.exchange.burst_packets;
  }
  message.take_next(out.data, now);
  out.data.job = core_.config.job;
  out.data.epoch = core_.config.epoch;
  out.data.destination = peer.rank;
  out.data.timestamp_us = stamp_us(now);
  if (message.is_streamed()) {
    number_on_stream(message, out.data);
  } else {
    number_on_path(message, now, out.data);
  }
  out.data_bytes = message.packet_bytes;
  out.source = message.source;
  out.route = {.peer = peer.rank,
               .path = out.data.path,
               .dscp = spillway_dscp_of_priority(message.priority),
               .ecn = message.loss.loss_bound_ppm == 0
                          ? static_cast<std::uint8_t>(SPILLWAY_ECN_ECT0)
                          : spillway_ecn_of_importance(out.data.importance),
               .carrier = message.carrier};
  ++core_.counters.data_sent;
  core_.counters.data_resent += out.data.retransmit ? 1 : 0;
  core_.counters.data_sent_bytes += out.data_bytes;
  core_.counters.data_resent_bytes += out.data.retransmit ? out.data_bytes : 0;
  expect_report(message, now);
  if (--line.burst_left == 0) {
    scheduler(message.carrier).rotate();
    next_carrier_ = message.is_streamed() ? Carrier::kDatagrams : Carrier::kStream;
  }
  if (message.all_sent()) {
    scheduler(message.carrier).leave(message);
  }
}

void Sender::number_on_path(OutgoingMessage& message, base::Instant now, wire::DataStamp& stamp) {
  Peer& peer = *message.peer;
  peer.unsent -= stamp.retransmit ? 0 : 1;
  stamp.path = peer.path;
  stamp.number =
      peer.paths.on_sent(peer.path, {.slot = message.slot,
                                     .packet = stamp.packet,
                                     .bytes = static_cast<std::uint16_t>(message.packet_bytes),
                                     .priority = message.priority,
                                     .serial = message.serial});
  peer.balance.on_sent();
  peer.has_asked_for_credit = false;
  peer.last_sent = now;
  stamp.report = asks_for_report(message);
  message.stall.on_sent(1, now, peer.carried);
}

// The STOP is the only report that is waited for.
void Sender::number_on_stream(OutgoingMessage& message, wire::DataStamp& stamp) {
  message.stream_number = ++message.peer->stream_sent;
  stamp.path = kStreamPath;
  stamp.number = message.stream_number;
  stamp.report = false;
}

// Asks where nothing more would go out without a report. One request will do, unless the packet
// that asked was lost.
bool Sender::asks_for_report(const OutgoingMessage& message) {
  Peer& peer = *message.peer;
  const SendLine& line = message.line();
  const bool is_last = message.all_sent() && line.messages.size() == 1;
  const bool asks =
      is_last || (!line.may_send() && peer.sent_since_asking % kPacketsPerAsking == 0);
  peer.sent_since_asking = asks ? 1 : peer.sent_since_asking + 1;
  return asks;
}

void Sender::expect_report(OutgoingMessage& message, base::Instant now) {
  message.last_sent = now;
  if (!message.all_sent()) {
    message.probe_due = now + message.probe_wait;
    return;
  }
  probe_after(message.slot, drained_after(message), now);
}

// How long to wait before asking: all packets in flight must have arrived.
base::Duration Sender::drained_after(const OutgoingMessage& message) const {
  const Peer& peer = *message.peer;
  const ExchangeConfig& exchange = core_.config.exchange;
  const RoundTrip& end_wait = message.line().end_wait;
  if (!message.is_streamed()) {
    return peer.round_trip.is_known()
               ? std::max({peer.round_trip.timeout(), end_wait.timeout(), exchange.linger_min})
               : message.probe_wait;
  }
  // Only the STOP can be lost, and only if it does not take the stream.
  return end_wait.is_known() && !peer.is_stream ? std::max(end_wait.timeout(), exchange.probe_min)
                                                : message.probe_wait;
}

void Sender::check_for_stall(OutgoingMessage& message, base::Instant now) {
  const Peer& peer = *message.peer;
  if (!core_.config.reports_stalls || now - peer.last_heard > kStallGap ||
      !message.stall.detects_stall(now, peer.carried, kStallAfter)) {
    return;
  }
  const bool is_blocked = peer.unsent_error != 0 && peer.unsent_at >= message.stall.since();
  core_.events.push_back(
      MessageStalled{.id = message.id,
                     .peer = peer.rank,
                     .side = StallSide::kSending,
                     .reason = is_blocked ? StallReason::kBlockedHere
                                          : reason_of(message.packets, message.packet_bytes),
                     .path = peer.paths.worst(),
                     .paths = core_.config.exchange.paths,
                     .packets = message.stall.packets(),
                     .datagram_bytes = is_blocked ? peer.unsent_bytes : message.packet_bytes,
                     .error = is_blocked ? peer.unsent_error : 0});
}

PayloadSource* Sender::source_of(const wire::DataStamp& stamp, std::uint16_t to) {
  const MessageKey key{stamp.message, to};
  const std::uint32_t slot = stamp.is_signed ? messages_.find(key) : messages_.find_alike(key);
  return slot != kNoSlot && stamp.packet < messages_[slot].packets ? messages_[slot].source
                                                                   : nullptr;
}

void Sender::finish(std::uint32_t slot, Outcome outcome, std::uint32_t delivered) {
  const OutgoingMessage& message = messages_[slot];
  core_.events.push_back(SendReport{.id = message.id,
                                    .to = message.peer->rank,
                                    .outcome = outcome,
                                    .packets = message.packets,
                                    .delivered = delivered,
                                    .transmitted = message.transmitted});
  drop(slot);
}

void Sender::drop(std::uint32_t slot) {
  OutgoingMessage& message = messages_[slot];
  Peer& peer = *message.peer;
  --peer.outgoing;
  if (message.is_streamed()) {
    --peer.streamed_out;
  } else {
    peer.unsent -= message.packets - message.next_position;
  }
  if (message.state == OutgoingState::kQueued) {
    scheduler(message.carrier).leave(message);
  }
  messages_.erase(slot);
}

void Sender::move_to_stream(Peer& peer) {
  messages_.for_each([&](std::uint32_t slot) {
    OutgoingMessage& message = messages_[slot];
    if (message.peer != &peer || message.is_streamed()) {
      return;
    }
    if (message.state == OutgoingState::kQueued) {
      scheduler(message.carrier).leave(message);
    }
    peer.unsent -= message.packets - message.next_position;
    ++peer.streamed_out;
    message.carrier = Carrier::kStream;
    enqueue(message);
  });
}

void Sender::end_messages_to(Peer& peer, Outcome outcome) {
  messages_.for_each([&](std::uint32_t slot) {
    if (messages_[slot].peer == &peer) {
      finish(slot, outcome, /*delivered=*/0);  // the peer has not said
    }
  });
}

void Sender::withdraw(const wire::MessageId& id, std::uint16_t to) {
  const std::uint32_t slot = messages_.find({id, to});
  if (slot != kNoSlot) {
    drop(slot);
  }
}

Holdup Sender::holdup() {
  for (const SendScheduler& scheduler : schedulers_) {
    if (scheduler.has_ready()) {
      return Holdup::kNothing;
    }
  }
  Holdup nearest = Holdup::kIdle;
  messages_.for_each([&](std::uint32_t slot) {
    const OutgoingMessage& message = messages_[slot];
    const bool is_in_line = message.state == OutgoingState::kQueued;
    const Holdup own = is_in_line && message.is_streamed() ? Holdup::kStream
                       : is_in_line                        ? Holdup::kCredit
                       : message.is_paused                 ? Holdup::kReceiver
                                                           : Holdup::kReport;
    nearest = std::min(nearest, own);
  });
  return nearest;
}

std::size_t Sender::memory_bytes() {
  std::size_t bytes = messages_.memory_bytes();
  messages_.for_each([&](std::uint32_t slot) { bytes += messages_[slot].memory_bytes(); });
  return bytes;
}

void OutgoingMessage::take_next(wire::DataStamp& stamp, base::Instant now) {
  SPILLWAY_CHECK(has_packet());
  stamp.message = id;
  stamp.priority = priority;
  stamp.retransmit = !repairs.empty();
  if (stamp.retransmit) {
    stamp.packet = repairs.front();
    repairs.pop_front();
    repaired[stamp.packet] = now;
  } else {
    stamp.packet = static_cast<std::uint16_t>(order.packet_at(next_position++));
  }
  stamp.importance = importance_of(stamp.packet);
  stamp.requires_some = important > 0;
  stamp.last = all_sent();
  ++transmitted;
}

void OutgoingMessage::repair(std::uint16_t packet) {
  repairs.push_back(packet);
  repaired[packet] = kNever;
}

// Packets within the budget may stay missing; which ones does not matter, unless they are required.
void OutgoingMessage::on_gap(std::uint16_t packet) {
  const auto found = repaired.find(packet);
  if (found != repaired.end() && found->second == kNever) {
    return;  // it is to be sent again anyway
  }
  if (++gaps > loss.allowed_missing(packets) ||
      importance_of(packet) == SPILLWAY_IMPORTANCE_REQUIRED) {
    repair(packet);
  }
}

void OutgoingMessage::on_bitmap(const wire::ControlPacket& bitmap, base::Instant seen_before) {
  const wire::BitmapRange& range = bitmap.bitmap.range;
  if (bitmap_generation != bitmap.generation) {
    bitmap_generation = bitmap.generation;
    for (const std::uint16_t packet : repairs) {
      repaired.erase(packet);  // if it is still missing, this says so
    }
    repairs.clear();
    const std::uint32_t unforgiven =
        bitmap.bitmap.missing - std::min(bitmap.bitmap.missing, bitmap.bitmap.allowed);
    // A few more than needed: some repairs will be lost as well.
    bitmap_quota = unforgiven == 0 ? 0 : unforgiven + unforgiven / 8 + 1;
  }
  std::vector<std::uint16_t> missing;
  const std::uint32_t end = std::min(range.first + range.count, packets);
  for (std::uint32_t index = range.first; index < end; ++index) {
    if (!range.delivered(index)) {
      missing.push_back(static_cast<std::uint16_t>(index));
    }
  }
  // The most important first; only they are sent again beyond the quota.
  std::stable_sort(missing.begin(), missing.end(), [this](std::uint16_t a, std::uint16_t b) {
    return importance_of(a) > importance_of(b);
  });
  for (const std::uint16_t packet : missing) {
    if (bitmap_quota == 0 && importance_of(packet) != SPILLWAY_IMPORTANCE_REQUIRED) {
      break;
    }
    bitmap_quota -= bitmap_quota > 0 ? 1 : 0;
    const auto found = repaired.find(packet);
    if (found == repaired.end() || found->second <= seen_before) {
      repair(packet);
    }
  }
}

std::size_t OutgoingMessage::memory_bytes() const {
  return packet_importance.capacity() + repairs.size() * sizeof(repairs[0]) +
         repaired.size() * sizeof(*repaired.begin());
}

}  // namespace spillway::transport
