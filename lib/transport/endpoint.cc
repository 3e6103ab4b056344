// SPDX-License-Identifier: Apache-2.0
#include "transport/endpoint.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "transport/core.h"
#include "transport/receiver.h"
#include "transport/sender.h"
#include "transport/sum_exchange.h"
#include "wire/data_packet.h"

namespace spillway::transport {
namespace {

// The peer timeout of a stream is longer by this factor: TCP is silent while it backs off, and it
// reports a closed connection itself.
constexpr int kStreamTimeoutFactor = 4;

// A peer whose port is reported to refuse has this share of the peer timeout to reply (which grows
// where ranks share processors), at most kRefusedTimeout, but at least some round trips.
constexpr int kRefusedShare = 4;
constexpr base::Duration kRefusedTimeout = base::seconds(1);
constexpr int kRefusedRoundTrips = 4;

}  // namespace

// ------------------------------------------------------------------ sessions

base::Result<std::unique_ptr<PeerSession>> PeerSession::make(const SessionConfig& session,
                                                             const EndpointConfig& config,
                                                             std::uint16_t peer) {
  base::Result<wire::PacketAuth> out =
      wire::PacketAuth::make(session.key, {config.epoch, config.rank, peer}, session.protection);
  base::Result<wire::PacketAuth> in =
      wire::PacketAuth::make(session.key, {config.epoch, peer, config.rank}, session.protection);
  if (!out.ok() || !in.ok()) {
    return out.ok() ? in.status() : out.status();
  }
  return std::unique_ptr<PeerSession>(new PeerSession{.out = std::move(out).value(),
                                                      .in = std::move(in).value(),
                                                      .first_number = config.first_number,
                                                      .newest_control = config.first_number});
}

void PeerSession::on_data(std::uint8_t path, std::uint64_t number) {
  if (path >= newest_data.size()) {
    newest_data.resize(path + std::size_t{1}, first_number);
  }
  newest_data[path] = std::max(newest_data[path], number);
}

// ------------------------------------------------------------------ the endpoint

class Endpoint::Impl {
 public:
  explicit Impl(const EndpointConfig& config)
      : core(config), sender(core), receiver(core), sums(core) {}

  // The peer a packet is from if it may be processed, else null.
  Peer* admit(const Envelope& envelope) {
    if (envelope.job != core.config.job) {
      ++core.counters.foreign_job;
      return nullptr;
    }
    if (static_cast<std::uint8_t>(envelope.epoch) != static_cast<std::uint8_t>(core.config.epoch)) {
      ++core.counters.other_epoch;
      return nullptr;
    }
    if (envelope.destination != core.config.rank) {
      ++core.counters.misaddressed;
      return nullptr;
    }
    Peer* peer = core.peers.find(envelope.source);
    if (peer == nullptr || peer->dead) {
      ++core.counters.unknown_peer;
      return nullptr;
    }
    return peer;
  }

  void on_peer_timer(std::uint16_t rank, base::Instant now) {
    Peer& peer = *core.peers.find(rank);
    peer.timer_armed = false;
    if (peer.dead || !peer.is_awaited()) {
      return;
    }
    const ExchangeConfig& exchange = core.config.exchange;
    const base::Duration silence = now - peer.last_heard;
    if (peer.is_suspect() && now - *peer.refused >= refused_timeout(peer)) {
      declare_dead(peer, DeathCause::kRefused, now);
      return;
    }
    if (silence >= exchange.peer_timeout * (peer.is_stream ? kStreamTimeoutFactor : 1)) {
      declare_dead(peer, DeathCause::kSilent, now);
      return;
    }
    if (peer.is_suspect()) {
      ping(peer);
    } else if (silence >= std::min(exchange.probe_max, core.watch_interval())) {
      ping_silent_peer(peer);
    }
    core.watch(peer, now);
  }

  base::Duration refused_timeout(const Peer& peer) const {
    const base::Duration timeout = core.config.exchange.peer_timeout;
    const base::Duration usual = std::min(timeout / kRefusedShare, kRefusedTimeout);
    return std::min(timeout, std::max(usual, peer.round_trip.timeout() * kRefusedRoundTrips));
  }

  // Any host on the path can claim that a port refuses. So the claim only causes a ping, to which
  // only a living peer can reply.
  void suspect(Peer& peer, base::Instant now) {
    if (!peer.is_suspect()) {
      peer.refused = now;
      ping(peer);
      core.watch(peer, now);
    }
  }

  void declare_dead(Peer& peer, DeathCause cause, base::Instant now) {
    peer.dead = true;
    sender.end_messages_to(peer, Outcome::kPeerDead);
    receiver.end_messages_from(peer, now);
    core.events.push_back(PeerDead{peer.rank, cause});
  }

  void ping_silent_peer(Peer& peer) {
    if (peer.incoming > 0) {
      receiver.ping(peer);
    } else if (peer.outgoing == peer.streamed_out) {
      ping(peer);  // PROBEs of messages by datagram do the same
    }
  }

  // The ping names no message, so every living peer replies to it.
  void ping(const Peer& peer) {
    core.queue_reply({.kind = PendingControl::Kind::kReply,
                      .peer = peer.rank,
                      .reply = wire::ControlType::kCredit,
                      .ping = true,
                      .message = {.source = peer.rank}});
  }

  void queue_leave(std::uint16_t peer) {
    core.queue_reply(
        {.kind = PendingControl::Kind::kReply, .peer = peer, .reply = wire::ControlType::kLeave});
  }

  void on_leave(const wire::ControlPacket& packet, Peer& peer) {
    if (peer.has_left) {
      return;
    }
    peer.has_left = true;
    if (packet.leave.cause == wire::FailureCause::kClosed && packet.leave.culprit == peer.rank) {
      // The peer has finished, so it needs no more data.
      sender.end_messages_to(peer, Outcome::kEverything);
    }
    PeerFailed failed{packet.source, packet.leave.culprit, packet.leave.cause,
                      packet.message.operation};
    if (packet.leave.cause == wire::FailureCause::kMismatch) {
      failed.mismatch = std::make_shared<const wire::Mismatch>(packet.mismatch);
    }
    core.events.push_back(std::move(failed));
  }

  // Writes the next control packet, if there is one.
  bool poll_control(base::Instant now, Transmission& out) {
    while (!core.control.empty()) {
      const PendingControl work = core.control.front();
      const bool written = write_control(work, out.control, now);
      if (work.kind != PendingControl::Kind::kReport || !receiver.has_more_reports(work.slot)) {
        core.control.pop_front();
        if (work.kind == PendingControl::Kind::kReport) {
          receiver.leave_queue(work.slot);
        }
      }
      if (written) {
        address(out, now);
        return true;
      }
    }
    return false;
  }

  bool write_control(const PendingControl& work, wire::ControlPacket& packet, base::Instant now) {
    switch (work.kind) {
      case PendingControl::Kind::kProbe:
        return sender.write_probe(work.slot, packet);
      case PendingControl::Kind::kReport:
        return receiver.write_report(work.slot, packet, now);
      case PendingControl::Kind::kReply:
        --core.replies;
        packet.type = work.reply;
        packet.destination = work.peer;
        packet.message = work.message;
        packet.generation = work.generation;
        packet.stop = work.stop;
        packet.credit.granted =
            static_cast<std::uint32_t>(core.peers.find(work.peer)->book.granted());
        packet.credit.answer = work.ping;
        packet.credit.path_count = 0;
        if (work.reply == wire::ControlType::kLeave) {
          packet.leave = *core.left;
          if (packet.leave.cause == wire::FailureCause::kMismatch) {
            packet.mismatch = core.mismatch;
          }
          packet.message.operation = core.retired.floor();
        }
        return true;
    }
    return false;
  }

  void address(Transmission& out, base::Instant now) {
    wire::ControlPacket& packet = out.control;
    Peer& peer = *core.peers.find(packet.destination);
    packet.job = core.config.job;
    packet.epoch = core.config.epoch;
    packet.source = core.config.rank;
    packet.path = peer.paths.choose_for_control();
    packet.timestamp_us = stamp_us(now);
    packet.sequence = ++peer.control_sequence;
    out.route = {.peer = packet.destination,
                 .path = packet.path,
                 .dscp = SPILLWAY_DSCP_CONTROL,
                 .ecn = SPILLWAY_ECN_ECT0,
                 .is_control = true,
                 .carrier = peer.control_carrier()};
    ++core.counters.control_sent;
  }

  Core core;
  Sender sender;
  Receiver receiver;
  SumExchange sums;
};

Endpoint::Endpoint(const EndpointConfig& config) : impl_(std::make_unique<Impl>(config)) {
  const ExchangeConfig& exchange = config.exchange;
  SPILLWAY_CHECK(exchange.paths >= 1 && exchange.paths <= PathSet::kMaxPaths);
  SPILLWAY_CHECK(exchange.burst_packets >= 1 && exchange.report_packets >= 1);
}
Endpoint::~Endpoint() = default;
Endpoint::Endpoint(Endpoint&&) noexcept = default;
Endpoint& Endpoint::operator=(Endpoint&&) noexcept = default;

const EndpointConfig& Endpoint::config() const {
  return impl_->core.config;
}

base::Status Endpoint::add_peer(std::uint16_t rank, base::Instant now,
                                std::unique_ptr<PeerSession> session) {
  Core& core = impl_->core;
  if (core.peers.find(rank) != nullptr) {
    return base::invalid_argument("rank " + std::to_string(rank) + " is a peer already");
  }
  if (core.peers.is_full()) {
    return {base::StatusCode::kLimitExceeded, "there are " + std::to_string(core.peers.size()) +
                                                  " peers already; raise EndpointLimits::peers"};
  }
  const ExchangeConfig& exchange = core.config.exchange;
  const PathConfig paths{.delay_target = exchange.window.delay_target,
                         .first_number = core.config.first_number};
  Peer& peer = core.peers.add(rank, exchange.paths, paths, exchange.window, exchange.packet,
                              packets_in(exchange.unsolicited, core.config));
  peer.last_heard = now;
  peer.session = std::move(session);
  return {};
}

const Peer* Endpoint::find_peer(std::uint16_t rank) const {
  const PeerTable& peers = impl_->core.peers;
  return peers.find(rank);
}

base::Status Endpoint::send(const SendOptions& options, base::Instant now) {
  return impl_->sender.send(options, now);
}

base::Status Endpoint::expect(const ReceiveOptions& options, base::Instant now) {
  return impl_->receiver.expect(options, now);
}

void Endpoint::cancel(const wire::MessageId& id, base::Instant now) {
  impl_->receiver.cancel(id, now);
}

void Endpoint::withdraw(const wire::MessageId& id, std::uint16_t peer, base::Instant now) {
  if (id.source == impl_->core.config.rank) {
    if (SourceReader* reader = impl_->core.config.reader; reader != nullptr) {
      reader->let_go(id, peer);
    }
    impl_->sender.withdraw(id, peer);
  } else {
    impl_->receiver.withdraw(id, now);
  }
}

base::Status Endpoint::begin_sum(const SumOptions& options, base::Instant now) {
  return impl_->sums.begin(options, now);
}

void Endpoint::withdraw_sum(const SumId& id) {
  impl_->sums.withdraw(id);
}

void Endpoint::finish_sum_for(const SumId& id, std::uint16_t rank) {
  impl_->sums.finish_for(id, rank);
}

void Endpoint::retire(std::uint64_t operation) {
  impl_->core.retired.add(operation);
  impl_->receiver.forget_ended(operation);
}

void Endpoint::retire_before(std::uint64_t operation) {
  impl_->core.retired.add_before(operation);
  impl_->receiver.forget_ended_before(operation);
}

void Endpoint::retire_before(std::uint16_t peer, std::uint64_t operation) {
  if (Peer* found = impl_->core.peers.find(peer); found != nullptr) {
    found->point_to_point_floor = operation;
    impl_->receiver.forget_ended_before(peer, operation);
  }
}

void Endpoint::watch_all_peers(bool watch, base::Instant now) {
  Core& core = impl_->core;
  core.peers.for_each([&](Peer& peer) {
    if (watch && !peer.dead) {
      core.await(peer, now);
    }
    peer.is_watched = watch;
  });
}

void Endpoint::leave(std::uint16_t culprit, wire::FailureCause cause,
                     const wire::Mismatch* mismatch) {
  Core& core = impl_->core;
  core.left = {.culprit = culprit, .cause = cause};
  core.mismatch = mismatch != nullptr ? *mismatch : wire::Mismatch{};
  core.peers.for_each([&](const Peer& peer) {
    if (!peer.dead) {
      impl_->queue_leave(peer.rank);
    }
  });
}

void Endpoint::begin_epoch(const Epoch& epoch) {
  EndpointConfig config = impl_->core.config;
  const EndpointCounters counters = impl_->core.counters;
  config.job = epoch.job;
  config.epoch = epoch.number;
  config.rank = epoch.rank.value_or(config.rank);
  impl_ = std::make_unique<Impl>(config);
  impl_->core.counters = counters;
}

Peer* Endpoint::admit(const Envelope& envelope) {
  return impl_->admit(envelope);
}

void Endpoint::complete(std::uint64_t& epoch, wire::MessageId& message, const Peer& peer) const {
  const Core& core = impl_->core;
  epoch = core.config.epoch;
  // Point-to-point messages are numbered by direction: reports are about messages to the peer.
  const bool is_report =
      message.phase == wire::Phase::kPointToPoint && message.source == core.config.rank;
  const std::uint64_t near =
      is_report ? peer.point_to_point_sent : core.floor_of(message.phase, peer);
  message.operation = wire::widen_counter(message.operation, near);
}

void Endpoint::complete(DataArrival& arrival, Peer& peer) const {
  impl_->receiver.complete(arrival, peer);
}

void Endpoint::on_data(const DataArrival& arrival, base::Instant now) {
  const wire::DataStamp& stamp = arrival.stamp;
  Peer* peer = impl_->admit({stamp.job, stamp.epoch, stamp.message.source, stamp.destination});
  if (peer != nullptr) {
    on_data(arrival, *peer, now);
  }
}

void Endpoint::on_data(const DataArrival& arrival, Peer& peer, base::Instant now) {
  impl_->receiver.on_data(arrival, peer, now);
}

void Endpoint::on_control(const wire::ControlPacket& packet, base::Instant now) {
  Peer* peer = impl_->admit({packet.job, packet.epoch, packet.source, packet.destination});
  if (peer != nullptr) {
    on_control(packet, *peer, now);
  }
}

void Endpoint::on_control(const wire::ControlPacket& packet, Peer& peer, base::Instant now) {
  Core& core = impl_->core;
  if (!peer.replay.accept(packet.sequence)) {
    ++core.counters.replayed;
    return;
  }
  peer.last_heard = now;
  peer.has_spoken = true;
  ++core.counters.control_taken;
  if (core.left && packet.type != wire::ControlType::kLeave) {
    impl_->queue_leave(packet.source);
  }
  switch (packet.type) {
    case wire::ControlType::kProbe:
      impl_->receiver.on_probe(packet, peer, now);
      return;
    case wire::ControlType::kStop:
      impl_->sender.on_stop(packet, now);
      return;
    case wire::ControlType::kBitmap:
      impl_->sender.on_bitmap(packet, now);
      return;
    case wire::ControlType::kCredit:
      impl_->sender.on_credit(packet, peer, now);
      return;
    case wire::ControlType::kWait:
      impl_->sender.on_wait(packet, now);
      return;
    case wire::ControlType::kLeave:
      impl_->on_leave(packet, peer);
      return;
  }
}

void Endpoint::on_sum(const wire::SumPacket& packet, std::span<const std::uint64_t> words,
                      bool marked, base::Instant now) {
  if (impl_->core.left) {
    impl_->queue_leave(packet.source);
  }
  impl_->sums.on_packet(packet, words, marked, now);
}

void Endpoint::on_trimmed_sum(const wire::SumPacket& packet, base::Instant now) {
  impl_->sums.on_trimmed(packet, now);
}

void Endpoint::on_refused(std::uint16_t rank, base::Instant now) {
  Peer* peer = impl_->core.peers.find(rank);
  if (peer != nullptr && !peer->dead && peer->is_awaited()) {
    impl_->suspect(*peer, now);
  }
}

void Endpoint::on_stream_lost(std::uint16_t rank, base::Instant now) {
  Peer* peer = impl_->core.peers.find(rank);
  const bool is_relied_on =
      peer != nullptr && (peer->is_stream || peer->streamed_out > 0 || peer->streamed_in > 0);
  if (is_relied_on && !peer->dead && peer->is_awaited()) {
    impl_->declare_dead(*peer, DeathCause::kRefused, now);
  }
}

std::uint64_t Endpoint::latest_control_to(std::uint16_t rank) const {
  const Peer* peer = impl_->core.peers.find(rank);
  return peer == nullptr ? 0 : peer->control_sequence;
}

std::uint64_t Endpoint::latest_data_to(std::uint16_t rank, std::uint8_t path) const {
  const Peer* peer = impl_->core.peers.find(rank);
  return peer == nullptr ? 0 : peer->paths.latest_on(path);
}

PayloadSource* Endpoint::source_of(std::uint16_t rank, const wire::DataStamp& stamp) {
  return impl_->sender.source_of(stamp, rank);
}

void Endpoint::on_unsent(std::uint16_t rank, std::uint32_t bytes, int error, base::Instant now) {
  if (Peer* peer = impl_->core.peers.find(rank); peer != nullptr) {
    peer->unsent_error = error;
    peer->unsent_bytes = bytes;
    peer->unsent_at = now;
  }
}

void Endpoint::use_stream(std::uint16_t rank) {
  Peer* peer = impl_->core.peers.find(rank);
  if (peer == nullptr || peer->is_stream) {
    return;
  }
  peer->is_stream = true;
  impl_->sender.move_to_stream(*peer);
  impl_->receiver.move_to_stream(*peer);
}

void Endpoint::set_stream(std::uint16_t rank, StreamState state) {
  if (Peer* peer = impl_->core.peers.find(rank); peer != nullptr) {
    peer->stream = state;
    impl_->sender.on_stream_room(*peer);
  }
}

bool Endpoint::has_stream(std::uint16_t rank) const {
  const Peer* peer = find_peer(rank);
  return peer != nullptr && peer->stream != StreamState::kClosed;
}

bool Endpoint::has_all_streams() const {
  bool has_all = true;
  impl_->core.peers.for_each(
      [&](const Peer& peer) { has_all &= peer.dead || peer.stream != StreamState::kClosed; });
  return has_all;
}

Endpoint::Contact Endpoint::contact(std::uint16_t rank, base::Instant now) const {
  const Peer* peer = impl_->core.peers.find(rank);
  return peer == nullptr || peer->dead
             ? Contact{}
             : Contact{peer->is_awaited(), peer->has_spoken, now - peer->last_heard};
}

void Endpoint::on_timeout(base::Instant now) {
  TimerQueue& timers = impl_->core.timers;
  while (!timers.empty() && timers.next_due() <= now) {
    const Timer timer = timers.pop();
    switch (timer.kind) {
      case TimerKind::kPeer:
        impl_->on_peer_timer(static_cast<std::uint16_t>(timer.slot), now);
        break;
      case TimerKind::kOutgoing:
        impl_->sender.on_timer(timer.slot, now);
        break;
      case TimerKind::kIncoming:
        impl_->receiver.on_timer(timer.slot, now);
        break;
      case TimerKind::kCredit:
        impl_->receiver.on_credit_timer(now);
        break;
      case TimerKind::kSum:
        impl_->sums.on_timer(timer.slot, now);
        break;
    }
  }
}

base::Instant Endpoint::next_timeout() const {
  const TimerQueue& timers = impl_->core.timers;
  return timers.empty() ? kNever : timers.next_due();
}

bool Endpoint::poll_unpaced(base::Instant now, Transmission& out) {
  if (impl_->poll_control(now, out)) {
    out.kind = TransmissionKind::kControl;
    return true;
  }
  out.kind = TransmissionKind::kData;
  return impl_->sender.poll_data(now, /*with_datagrams=*/false, out);
}

bool Endpoint::poll_transmit(base::Instant now, Transmission& out) {
  if (impl_->poll_control(now, out)) {
    out.kind = TransmissionKind::kControl;
  } else if (impl_->sender.poll_data(now, /*with_datagrams=*/true, out)) {
    out.kind = TransmissionKind::kData;
  } else if (impl_->sums.poll(now, out)) {
    out.kind = TransmissionKind::kSum;
  } else {
    return false;
  }
  return true;
}

bool Endpoint::poll_event(Event& out) {
  std::deque<Event>& events = impl_->core.events;
  if (events.empty()) {
    return false;
  }
  out = std::move(events.front());
  events.pop_front();
  return true;
}

void Endpoint::prefetch(unsigned step) const {
  const Core& core = impl_->core;
  if (step > 0) {
    core.peers.prefetch_latest();
    return;
  }
  const auto fetch = [](const auto&... parts) { (__builtin_prefetch(&parts), ...); };
  fetch(core.config, core.peers, core.timers, core.control, core.events, core.counters,
        impl_->sender, impl_->receiver);
}

const EndpointCounters& Endpoint::counters() const {
  return impl_->core.counters;
}

std::optional<double> Endpoint::link_share(base::Instant now) const {
  return impl_->core.link_share.share(now);
}

Holdup Endpoint::holdup() const {
  const Holdup sending = impl_->sender.holdup();
  bool is_incoming = !impl_->sums.is_idle();
  impl_->core.peers.for_each([&](const Peer& peer) { is_incoming |= peer.incoming > 0; });
  return sending == Holdup::kIdle && is_incoming ? Holdup::kIncoming : sending;
}

std::size_t Endpoint::memory_bytes() const {
  return impl_->core.peers.memory_bytes() + impl_->core.timers.memory_bytes() +
         impl_->sender.memory_bytes() + impl_->receiver.memory_bytes() +
         impl_->sums.memory_bytes() + impl_->core.control.size() * sizeof(PendingControl);
}

}  // namespace spillway::transport
