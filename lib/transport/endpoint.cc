// SPDX-License-Identifier: Apache-2.0
#include "transport/endpoint.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "transport/core.h"
#include "transport/receiver.h"
#include "transport/round_trip.h"
#include "transport/sender.h"
#include "transport/sum_exchange.h"
#include "wire/widen.h"

namespace spillway::transport {
namespace {

// A stream is silent for longer while it backs off, and reports itself when its other end is gone.
constexpr int kStreamPatience = 4;

// How long a peer whose port is said to refuse may take to answer: this share of the peer timeout
// (which grows where ranks share processors), at most kRefusedPatience, but at least some round
// trips.
constexpr int kRefusedShare = 4;
constexpr base::Duration kRefusedPatience = base::seconds(1);
constexpr int kRefusedRoundTrips = 4;

}  // namespace

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
    if (static_cast<std::uint16_t>(envelope.epoch) !=
        static_cast<std::uint16_t>(core.config.epoch)) {
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
    if (peer.is_suspect() && now - *peer.refused >= refused_patience(peer)) {
      bury(peer, DeathCause::kRefused, now);
      return;
    }
    if (silence >= exchange.peer_timeout * (peer.is_stream ? kStreamPatience : 1)) {
      bury(peer, DeathCause::kSilent, now);
      return;
    }
    if (peer.is_suspect()) {
      ask(peer);
    } else if (silence >= std::min(exchange.probe_max, core.watch_interval())) {
      ask_for_sign_of_life(peer);
    }
    core.watch(peer, now);
  }

  base::Duration refused_patience(const Peer& peer) const {
    const base::Duration timeout = core.config.exchange.peer_timeout;
    const base::Duration usual = std::min(timeout / kRefusedShare, kRefusedPatience);
    return std::min(timeout, std::max(usual, peer.round_trip.patience() * kRefusedRoundTrips));
  }

  // Anybody on the way can say that a port refuses. So that only begins an exchange that nobody
  // else can answer: the peer is asked, and a living one replies.
  void suspect(Peer& peer, base::Instant now) {
    if (!peer.is_suspect()) {
      peer.refused = now;
      ask(peer);
      core.watch(peer, now);
    }
  }

  void bury(Peer& peer, DeathCause cause, base::Instant now) {
    peer.dead = true;
    sender.end_messages_to(peer, Outcome::kPeerDead);
    receiver.end_messages_from(peer, now);
    core.events.push_back(PeerDead{peer.rank, cause});
  }

  void ask_for_sign_of_life(Peer& peer) {
    if (peer.incoming > 0) {
      receiver.ask_for_answer(peer);
    } else if (peer.outgoing == 0) {  // otherwise its outgoing messages ask
      ask(peer);
    }
  }

  // The question is about no message, so the peer always answers it.
  void ask(const Peer& peer) {
    core.queue_reply({.kind = ControlWork::Kind::kReply,
                      .peer = peer.rank,
                      .reply = wire::ControlType::kCredit,
                      .asks = true,
                      .message = {.source = peer.rank}});
  }

  void queue_leave(std::uint16_t peer) {
    core.queue_reply(
        {.kind = ControlWork::Kind::kReply, .peer = peer, .reply = wire::ControlType::kLeave});
  }

  void on_leave(const wire::ControlPacket& packet, Peer& peer) {
    if (peer.has_left) {
      return;
    }
    peer.has_left = true;
    if (packet.leave.cause == wire::FailureCause::kClosed && packet.leave.culprit == peer.rank) {
      // The peer was done, so it needs nothing more.
      sender.end_messages_to(peer, Outcome::kEverything);
    }
    PeerFailed failed{packet.source, packet.leave.culprit, packet.leave.cause,
                      packet.message.operation};
    if (packet.leave.cause == wire::FailureCause::kMismatch) {
      failed.mismatch = std::make_shared<const wire::Mismatch>(packet.mismatch);
    }
    core.events.push_back(std::move(failed));
  }

  // The next control packet, if any message has something to say.
  bool poll_control(base::Instant now, Transmission& out) {
    while (!core.control.empty()) {
      const ControlWork work = core.control.front();
      const bool written = write_control(work, out.control, now);
      if (work.kind != ControlWork::Kind::kAnswer || !receiver.owes_more(work.slot)) {
        core.control.pop_front();
        if (work.kind == ControlWork::Kind::kAnswer) {
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

  bool write_control(const ControlWork& work, wire::ControlPacket& packet, base::Instant now) {
    switch (work.kind) {
      case ControlWork::Kind::kProbe:
        return sender.write_probe(work.slot, packet);
      case ControlWork::Kind::kAnswer:
        return receiver.write_answer(work.slot, packet, now);
      case ControlWork::Kind::kReply:
        --core.replies;
        packet.type = work.reply;
        packet.destination = work.peer;
        packet.message = work.message;
        packet.generation = work.generation;
        packet.stop = work.stop;
        packet.credit.granted =
            static_cast<std::uint32_t>(core.peers.find(work.peer)->book.granted());
        packet.credit.answer = work.asks;
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
                 .is_control = true};
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

base::Status Endpoint::add_peer(std::uint16_t rank, base::Instant now) {
  Core& core = impl_->core;
  if (core.peers.find(rank) != nullptr) {
    return base::invalid_argument("rank " + std::to_string(rank) + " is a peer already");
  }
  if (core.peers.is_full()) {
    return {base::StatusCode::kLimitExceeded, "there are " + std::to_string(core.peers.size()) +
                                                  " peers already; raise EndpointLimits::peers"};
  }
  const PathConfig paths{.delay_target = core.config.congestion.delay_target,
                         .first_number = core.config.first_number};
  CongestionConfig congestion = core.config.congestion;
  congestion.trimmed_target = core.config.exchange.trimmed_target.value_or(0.0);
  core.peers
      .add(rank, core.config.exchange.paths, paths, congestion,
           packets_in(core.config.exchange.unsolicited, core.config))
      .last_heard = now;
  return {};
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

void Endpoint::watch_everybody(bool watch, base::Instant now) {
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

bool Endpoint::admits(const Envelope& envelope) {
  return impl_->admit(envelope) != nullptr;
}

void Endpoint::complete(std::uint64_t& epoch, wire::MessageId& message, std::uint16_t peer) {
  Core& core = impl_->core;
  const Peer* known = core.peers.find(peer);
  SPILLWAY_CHECK(known != nullptr);
  epoch = core.config.epoch;
  // Point-to-point messages are numbered by direction: answers are about messages to the peer.
  const bool is_answer =
      message.phase == wire::Phase::kPointToPoint && message.source == core.config.rank;
  const std::uint64_t near =
      is_answer ? known->point_to_point_sent : core.floor_of(message.phase, *known);
  message.operation = wire::widen(static_cast<std::uint32_t>(message.operation), near);
}

void Endpoint::on_data(const DataArrival& arrival, base::Instant now) {
  const wire::DataStamp& stamp = arrival.stamp;
  Peer* peer = impl_->admit({stamp.job, stamp.epoch, stamp.message.source, stamp.destination});
  if (peer != nullptr) {
    impl_->receiver.on_data(arrival, *peer, now);
  }
}

void Endpoint::on_control(const wire::ControlPacket& packet, base::Instant now) {
  Core& core = impl_->core;
  Peer* peer = impl_->admit({packet.job, packet.epoch, packet.source, packet.destination});
  if (peer == nullptr) {
    return;
  }
  if (!peer->replay.accept(packet.sequence)) {
    ++core.counters.replayed;
    return;
  }
  peer->last_heard = now;
  peer->has_spoken = true;
  ++core.counters.control_taken;
  if (core.left && packet.type != wire::ControlType::kLeave) {
    impl_->queue_leave(packet.source);
  }
  switch (packet.type) {
    case wire::ControlType::kProbe:
      impl_->receiver.on_probe(packet, *peer, now);
      return;
    case wire::ControlType::kStop:
      impl_->sender.on_stop(packet, now);
      return;
    case wire::ControlType::kBitmap:
      impl_->sender.on_bitmap(packet, now);
      return;
    case wire::ControlType::kCredit:
      impl_->sender.on_credit(packet, *peer, now);
      return;
    case wire::ControlType::kWait:
      impl_->sender.on_wait(packet, now);
      return;
    case wire::ControlType::kLeave:
      impl_->on_leave(packet, *peer);
      return;
  }
}

void Endpoint::on_sum(const wire::SumPacket& packet, std::span<const std::uint64_t> words,
                      bool marked, base::Instant now) {
  if (impl_->admit({packet.job, packet.epoch, packet.source, packet.destination}) == nullptr) {
    return;
  }
  if (impl_->core.left) {
    impl_->queue_leave(packet.source);
  }
  impl_->sums.on_packet(packet, words, marked, now);
}

void Endpoint::on_cut_sum(const wire::SumPacket& packet, base::Instant now) {
  if (impl_->admit({packet.job, packet.epoch, packet.source, packet.destination}) != nullptr) {
    impl_->sums.on_cut(packet, now);
  }
}

void Endpoint::on_refused(std::uint16_t rank, base::Instant now) {
  Peer* peer = impl_->core.peers.find(rank);
  if (peer != nullptr && !peer->dead && peer->is_awaited()) {
    impl_->suspect(*peer, now);
  }
}

void Endpoint::on_stream_lost(std::uint16_t rank, base::Instant now) {
  Peer* peer = impl_->core.peers.find(rank);
  if (peer != nullptr && !peer->dead && peer->is_awaited()) {
    impl_->bury(*peer, DeathCause::kRefused, now);
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
  impl_->sender.unblock(*peer);
  impl_->receiver.grant_all(*peer);
}

void Endpoint::set_full(std::uint16_t rank, bool is_full) {
  if (Peer* peer = impl_->core.peers.find(rank); peer != nullptr) {
    peer->is_full = is_full;
    impl_->sender.unblock(*peer);
  }
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

bool Endpoint::poll_transmit(base::Instant now, Transmission& out) {
  if (impl_->poll_control(now, out)) {
    out.kind = TransmissionKind::kControl;
  } else if (impl_->sender.poll_data(now, out)) {
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
         impl_->sums.memory_bytes() + impl_->core.control.size() * sizeof(ControlWork);
}

}  // namespace spillway::transport
