// SPDX-License-Identifier: Apache-2.0
#include "net/stream_carrier.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace spillway::net {

namespace {

constexpr std::uint64_t kAcceptorKey = UINT64_MAX;
constexpr int kEventsPerCall = 64;
constexpr base::Duration kRetryPause = base::milliseconds(100);
// Limit on the bytes that wait for all peers together, and the minimum for each peer.
constexpr std::size_t kFullBytesOfAll = 64 * 1024 * 1024;
constexpr std::size_t kLeastFullBytes = 4 * kMaxFrameBytes;

// A peer that was never heard is tried by TCP after this silence. If it is still not heard this
// long after TCP connected, UDP is believed not to reach it. Shorter if the peer timeout is short.
constexpr base::Duration kTrialAfter = base::milliseconds(200);
constexpr int kTrialsPerPeerTimeout = 4;
constexpr base::Duration kLookedAtAfter = base::milliseconds(20);

using State = StreamConnection::State;

}  // namespace

// ------------------------------------------------------------------ peers

base::Result<std::unique_ptr<StreamCarrier>> StreamCarrier::listen(const SocketAddress& address,
                                                                   StreamOwner& owner) {
  base::Result<StreamAcceptor> acceptor = StreamAcceptor::open(address);
  if (!acceptor.ok()) {
    return acceptor.status();
  }
  UniqueFd poll(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kAcceptorKey}};
  if (!poll.valid() || ::epoll_ctl(poll.get(), EPOLL_CTL_ADD, acceptor->fd(), &event) != 0) {
    return system_error("wait for connections", errno);
  }
  return std::unique_ptr<StreamCarrier>(
      new StreamCarrier(std::move(acceptor).value(), std::move(poll), address, owner));
}

StreamCarrier::StreamCarrier(StreamAcceptor acceptor, UniqueFd poll, const SocketAddress& local,
                             StreamOwner& owner)
    : acceptor_(std::move(acceptor)), poll_(std::move(poll)), local_(local), owner_(owner) {}

void StreamCarrier::begin_epoch(const StreamIdentity& own) {
  own_ = own;
  for (const std::unique_ptr<Peer>& peer : peers_) {
    if (peer != nullptr) {
      drop(peer->ours);
      drop(peer->theirs);
    }
  }
  peers_.clear();
  unsent_.clear();
  peer_count_ = 0;
  next_retry_ = transport::kNever;
  acceptor_.begin_epoch(own);
}

void StreamCarrier::add_peer(std::uint16_t rank, const SocketAddress& address) {
  if (rank >= peers_.size()) {
    peers_.resize(rank + 1U);
  }
  peers_[rank] = std::make_unique<Peer>();
  peers_[rank]->address = address;
  ++peer_count_;
  acceptor_.add_source(address);
}

StreamCarrier::Peer* StreamCarrier::find(std::uint16_t rank) const {
  return rank < peers_.size() ? peers_[rank].get() : nullptr;
}

bool StreamCarrier::is_used(std::uint16_t rank) const {
  const Peer* peer = find(rank);
  return peer != nullptr && peer->is_used;
}

StreamCounters StreamCarrier::counters() const {
  StreamCounters counters = counters_;
  counters.strangers = acceptor_.rejected();
  return counters;
}

// ------------------------------------------------------------------ connections

void StreamCarrier::use(std::uint16_t rank, base::Instant now) {
  if (Peer* peer = find(rank); peer != nullptr) {
    peer->is_used = true;
    open(rank, now);
  }
}

void StreamCarrier::open_all(base::Instant now) {
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    open(static_cast<std::uint16_t>(rank), now);
  }
}

void StreamCarrier::open(std::uint16_t rank, base::Instant now) {
  Peer* peer = find(rank);
  if (peer == nullptr || peer->is_kept) {
    return;
  }
  peer->is_kept = true;
  start_sending(rank, *peer);
  if (peer->sending == nullptr && peer->ours == nullptr && own_.rank < rank) {
    connect(rank, *peer, now);
  }
}

void StreamCarrier::try_peer(std::uint16_t rank, base::Instant now) {
  Peer* peer = find(rank);
  const bool is_connected = peer == nullptr || peer->ours != nullptr || peer->sending != nullptr;
  if (!is_connected && now >= peer->retry_at) {
    connect(rank, *peer, now);
  }
}

void StreamCarrier::drop_trial(std::uint16_t rank) {
  if (Peer* peer = find(rank); peer != nullptr && !peer->is_kept) {
    drop(peer->ours);
  }
}

// An epoll set keeps a closed descriptor that a child process still holds, so remove it explicitly.
void StreamCarrier::drop(std::unique_ptr<StreamConnection>& connection) {
  if (connection) {
    ::epoll_ctl(poll_.get(), EPOLL_CTL_DEL, connection->fd(), nullptr);
    connection.reset();
  }
}

std::optional<base::Instant> StreamCarrier::open_since(std::uint16_t rank) const {
  const Peer* peer = find(rank);
  if (peer == nullptr) {
    return std::nullopt;
  }
  const StreamConnection* tried = peer->sending != nullptr ? peer->sending : peer->ours.get();
  const bool is_open = tried != nullptr && tried->state() == State::kOpen;
  return is_open ? std::optional(tried->begun()) : std::nullopt;
}

void StreamCarrier::retry_later(Peer& peer, base::Instant now) {
  peer.retry_at = now + kRetryPause;
  next_retry_ = std::min(next_retry_, peer.retry_at);
}

void StreamCarrier::connect(std::uint16_t rank, Peer& peer, base::Instant now) {
  retry_later(peer, now);
  StreamNonce nonce;
  if (!fill_random(nonce).ok()) {
    return;
  }
  TcpAttempt attempt = connect_tcp(local_, peer.address);
  if (attempt.error != 0) {
    if (attempt.error == ECONNREFUSED) {
      on_refused(rank, peer);
    }
    return;
  }
  peer.ours = std::make_unique<StreamConnection>(
      std::move(attempt.fd), StreamHandshake::connecting(own_, rank, nonce), /*is_ours=*/true, now);
  watch(EPOLL_CTL_ADD, *peer.ours, EPOLLIN | EPOLLOUT);
}

// Replaces the peer's earlier connection if nothing was sent or received over it: a rank connects
// again if it lost its first connection before it learned that it was open.
void StreamCarrier::adopt(std::unique_ptr<StreamConnection> newcomer) {
  const std::uint16_t rank = newcomer->peer();
  Peer* peer = find(rank);
  const bool is_taken = peer != nullptr && peer->theirs &&
                        (peer->theirs.get() == peer->sending || peer->theirs->has_delivered());
  if (peer == nullptr || is_taken) {
    return;
  }
  drop(peer->theirs);
  peer->theirs = std::move(newcomer);
  watch(EPOLL_CTL_ADD, *peer->theirs, EPOLLIN);
  start_sending(rank, *peer);
}

void StreamCarrier::watch(int operation, const StreamConnection& connection, std::uint32_t events) {
  const Opener opener = connection.is_ours() ? Opener::kUs : Opener::kThem;
  epoll_event event{.events = events, .data = {.u64 = key_of(connection.peer(), opener)}};
  ::epoll_ctl(poll_.get(), operation, connection.fd(), &event);
}

void StreamCarrier::on_broken(std::uint16_t rank, Peer& peer, Opener opener, base::Instant now) {
  std::unique_ptr<StreamConnection>& broken = opener == Opener::kUs ? peer.ours : peer.theirs;
  const bool loses_peer = broken.get() == peer.sending || broken->has_delivered();
  const bool is_refused = broken->error() == ECONNREFUSED;
  peer.sending = broken.get() == peer.sending ? nullptr : peer.sending;
  retry_later(peer, now);
  drop(broken);
  if (loses_peer) {
    lose(rank, peer);
  } else if (is_refused) {
    on_refused(rank, peer);
  }
}

void StreamCarrier::on_refused(std::uint16_t rank, Peer& peer) {
  peer.is_kept = peer.is_used;
  if (peer.is_used) {
    lose(rank, peer);
  }
}

void StreamCarrier::lose(std::uint16_t rank, Peer& peer) {
  counters_.lost_peers += peer.is_lost ? 0 : 1;
  peer.is_lost = true;
  update_state(rank, peer);
  owner_.on_stream_lost(rank);
}

void StreamCarrier::on_timeout(base::Instant now) {
  acceptor_.on_timeout(now);
  next_retry_ = transport::kNever;
  for (std::uint16_t rank = 0; rank < peers_.size(); ++rank) {
    Peer* peer = find(rank);
    if (peer == nullptr || !peer->is_kept) {
      continue;
    }
    if (peer->is_lost) {
      owner_.on_stream_lost(rank);
    } else if (peer->sending == nullptr && peer->ours == nullptr && own_.rank < rank) {
      if (now >= peer->retry_at) {
        connect(rank, *peer, now);
      }
      next_retry_ = std::min(next_retry_, peer->retry_at);
    }
  }
}

// ------------------------------------------------------------------ receiving

bool StreamCarrier::receive(base::Instant now) {
  std::array<epoll_event, kEventsPerCall> events;
  const int count = ::epoll_wait(poll_.get(), events.data(), kEventsPerCall, 0);
  bool more = count == kEventsPerCall;
  for (int i = 0; i < count; ++i) {
    const auto& [happened, data] = events[static_cast<std::size_t>(i)];
    if (data.u64 != kAcceptorKey) {
      more |= serve(static_cast<std::uint16_t>(data.u64 >> 1), static_cast<Opener>(data.u64 & 1),
                    happened, now);
      continue;
    }
    for (std::unique_ptr<StreamConnection>& newcomer : acceptor_.take_proved(now)) {
      adopt(std::move(newcomer));
    }
  }
  return more;
}

// True if there may be more to read.
bool StreamCarrier::serve(std::uint16_t rank, Opener opener, std::uint32_t events,
                          base::Instant now) {
  Peer* peer = find(rank);
  StreamConnection* connection =
      peer == nullptr ? nullptr : (opener == Opener::kUs ? peer->ours : peer->theirs).get();
  if (connection == nullptr) {
    return false;
  }
  const bool was_open = connection->state() == State::kOpen;
  if ((events & EPOLLOUT) != 0) {
    watch(EPOLL_CTL_MOD, *connection, EPOLLIN);
    queue(rank, *peer);
  }
  if (!was_open) {
    connection->on_writable(now);
  }
  const bool more = (events & ~std::uint32_t{EPOLLOUT}) != 0 && read(rank, *connection, now);
  if (connection->state() == State::kClosed) {
    on_broken(rank, *peer, opener, now);
    return false;
  }
  if (!was_open && connection->state() == State::kOpen) {
    start_sending(rank, *peer);
  }
  return more;
}

bool StreamCarrier::read(std::uint16_t rank, StreamConnection& connection, base::Instant now) {
  scratch_.resize(StreamConnection::kReadBytes);  // most communicators never need it
  const std::size_t bytes = connection.read(scratch_, now, [&](base::ByteView packet) {
    ++counters_.packets_received;
    owner_.on_stream_packet(rank, packet);
  });
  counters_.bytes_received += bytes;
  ++counters_.receive_calls;
  return bytes == scratch_.size();
}

// ------------------------------------------------------------------ sending

// Never switches to another connection later: part of a frame may have left.
void StreamCarrier::start_sending(std::uint16_t rank, Peer& peer) {
  if (!peer.is_kept || peer.sending != nullptr || peer.is_lost) {
    return;
  }
  for (StreamConnection* candidate : {peer.ours.get(), peer.theirs.get()}) {
    if (peer.sending == nullptr && candidate != nullptr && candidate->state() == State::kOpen) {
      peer.sending = candidate;
    }
  }
  queue(rank, peer);
  update_state(rank, peer);
}

std::size_t StreamCarrier::full_bytes() const {
  return std::clamp(kFullBytesOfAll / std::max<std::size_t>(peer_count_, 1), kLeastFullBytes,
                    kFullBytes);
}

std::size_t StreamCarrier::most_bytes() const {
  return full_bytes() + full_bytes() / kControlParts;
}

// A stream is full at full_bytes(), and remains so until half of it has left.
transport::StreamState StreamCarrier::state_of(const Peer& peer) const {
  using transport::StreamState;
  if (peer.sending == nullptr || peer.is_lost) {
    return StreamState::kClosed;
  }
  const std::size_t most = peer.state == StreamState::kReady ? full_bytes() : full_bytes() / 2;
  return peer.out.waiting().size() < most ? StreamState::kReady : StreamState::kFull;
}

void StreamCarrier::update_state(std::uint16_t rank, Peer& peer) {
  const transport::StreamState before = std::exchange(peer.state, state_of(peer));
  if (peer.state != before) {
    owner_.on_stream_state(rank, peer.state);
  }
}

std::optional<base::MutableByteView> StreamCarrier::room(std::uint16_t rank) {
  Peer& peer = *find(rank);
  if (peer.is_lost || peer.out.waiting().size() >= most_bytes()) {
    ++counters_.dropped;
    return std::nullopt;
  }
  return peer.out.room(most_bytes() + kMaxFrameBytes);
}

void StreamCarrier::commit(std::uint16_t rank, std::size_t packet_bytes) {
  Peer& peer = *find(rank);
  peer.out.commit(packet_bytes);
  ++counters_.packets_sent;
  queue(rank, peer);
  update_state(rank, peer);
}

void StreamCarrier::queue(std::uint16_t rank, Peer& peer) {
  if (!peer.is_queued && peer.sending != nullptr && !peer.out.waiting().empty()) {
    peer.is_queued = true;
    unsent_.push_back(rank);
  }
}

bool StreamCarrier::flush() {
  const std::uint64_t before = counters_.bytes_sent;
  for (const std::uint16_t rank : std::exchange(unsent_, {})) {
    Peer& peer = *find(rank);
    peer.is_queued = false;
    if (peer.sending != nullptr) {
      flush(rank, peer);
    }
  }
  return counters_.bytes_sent > before;
}

void StreamCarrier::flush(std::uint16_t rank, Peer& peer) {
  while (!peer.out.waiting().empty()) {
    const std::size_t sent = peer.sending->write(peer.out.waiting());
    ++counters_.send_calls;
    counters_.bytes_sent += sent;
    peer.out.sent(sent);
    if (sent == 0) {
      break;
    }
  }
  if (!peer.out.waiting().empty()) {
    // Even if the connection broke: epoll then reports an event, too.
    ++counters_.waits;
    watch(EPOLL_CTL_MOD, *peer.sending, EPOLLIN | EPOLLOUT);
  }
  update_state(rank, peer);
}

// ------------------------------------------------------------------ choosing the carrier

base::Result<std::unique_ptr<StreamPaths>> StreamPaths::listen(const SocketAddress& address,
                                                               base::Duration peer_timeout,
                                                               transport::DatagramPort& port,
                                                               OnUsed on_used) {
  const base::Duration trial_after = std::min(kTrialAfter, peer_timeout / kTrialsPerPeerTimeout);
  std::unique_ptr<StreamPaths> paths(new StreamPaths(trial_after, port, std::move(on_used)));
  base::Result<std::unique_ptr<StreamCarrier>> carrier = StreamCarrier::listen(address, *paths);
  if (!carrier.ok()) {
    return carrier.status();
  }
  paths->carrier_ = std::move(carrier).value();
  return paths;
}

void StreamPaths::begin_epoch(std::uint64_t epoch) {
  undecided_.clear();
  carrier_->begin_epoch(
      {.rank = port_.endpoint().config().rank, .epoch = epoch, .key = port_.session().key});
}

void StreamPaths::open_all(base::Instant now) {
  now_ = now;
  carrier_->open_all(now);
}

void StreamPaths::add_peer(std::uint16_t rank, const SocketAddress& address, bool is_used,
                           base::Instant now) {
  carrier_->add_peer(rank, address);
  undecided_.push_back(rank);
  if (is_used) {
    port_.endpoint().use_stream(rank);
    carrier_->use(rank, now);
  }
}

std::size_t StreamPaths::write(const transport::Transmission& transmission) {
  const std::uint16_t peer = transmission.route.peer;
  const std::optional<base::MutableByteView> room = carrier_->room(peer);
  if (!room) {
    return 0;
  }
  const std::size_t size = port_.write(transmission, *room);
  carrier_->commit(peer, size);
  return size;
}

bool StreamPaths::flush(base::Instant now) {
  now_ = now;
  return carrier_->flush();
}

bool StreamPaths::receive(base::Instant now) {
  now_ = now;
  return carrier_->receive(now);
}

void StreamPaths::on_timeout(base::Instant now) {
  if (now < due_) {
    return;
  }
  now_ = now;
  due_ = now + kLookedAtAfter;
  carrier_->on_timeout(now);
  std::erase_if(undecided_, [this](std::uint16_t rank) {
    const bool is_settled =
        carrier_->is_used(rank) || port_.endpoint().contact(rank, now_).has_spoken;
    if (is_settled) {
      carrier_->drop_trial(rank);
    }
    return is_settled;
  });
  for (const std::uint16_t rank : undecided_) {
    try_or_use(rank);
  }
}

void StreamPaths::try_or_use(std::uint16_t rank) {
  const transport::Endpoint::Contact contact = port_.endpoint().contact(rank, now_);
  if (!contact.is_awaited || contact.silence < trial_after_) {
    return;
  }
  const std::optional<base::Instant> open_since = carrier_->open_since(rank);
  if (!open_since) {
    carrier_->try_peer(rank, now_);
  } else if (now_ - *open_since >= trial_after_ && contact.silence >= trial_after_ * 2) {
    use(rank);
  }
}

void StreamPaths::use(std::uint16_t rank) {
  port_.endpoint().use_stream(rank);
  carrier_->use(rank, now_);
  on_used_(rank);
}

void StreamPaths::on_stream_packet(std::uint16_t rank, base::ByteView packet) {
  // Single messages may take the stream; control packets do if its sender found that only TCP gets
  // through.
  const bool is_data = !packet.empty() && spillway_is_data_type(spillway_type_of(packet[0]));
  if (!is_data && !carrier_->is_used(rank)) {
    use(rank);
  }
  port_.on_datagram(packet, /*marked=*/false, now_);
}

void StreamPaths::on_stream_state(std::uint16_t rank, transport::StreamState state) {
  port_.endpoint().set_stream(rank, state);
}

void StreamPaths::on_stream_lost(std::uint16_t rank) {
  port_.endpoint().on_stream_lost(rank, now_);
  has_lost_ = true;
}

}  // namespace spillway::net
