// SPDX-License-Identifier: Apache-2.0
#include "net/stream_connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "net/sockets.h"

namespace spillway::net {
namespace {

constexpr std::uint32_t kMagic = 0x54535753;  // "SWST"
constexpr std::uint16_t kVersion = 1;
constexpr wire::KeyLabel kConnectLabel = wire::KeyLabel::kStreamConnects;
constexpr wire::KeyLabel kAnswerLabel = wire::KeyLabel::kStreamAnswers;

bool is_equal_in_constant_time(base::ByteView a, base::ByteView b) {
  unsigned differences = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    differences |= a[i] ^ b[i];
  }
  return differences == 0;
}

}  // namespace

// ------------------------------------------------------------------ frames

// Size of a whole frame, from its length field. Empty if no frame has such a length.
std::optional<std::size_t> FrameReader::frame_bytes(const std::uint8_t* length) {
  const auto packet = base::load_le<std::uint32_t>(length);
  if (packet == 0 || packet > SPILLWAY_MAX_PACKET) {
    is_broken_ = true;
    return std::nullopt;
  }
  return kFrameLengthBytes + packet;
}

std::optional<base::ByteView> FrameReader::next(base::ByteView& bytes) {
  if (is_handed_out_) {
    is_handed_out_ = false;
    begun_.clear();
  }
  if (is_broken_ || bytes.empty()) {
    return std::nullopt;
  }
  if (begun_.empty() && bytes.size() >= kFrameLengthBytes) {
    const std::optional<std::size_t> size = frame_bytes(bytes.data());
    if (!size) {
      return std::nullopt;
    }
    if (*size <= bytes.size()) {
      const base::ByteView packet = bytes.first(*size).subspan(kFrameLengthBytes);
      bytes = bytes.subspan(*size);
      return packet;
    }
  }
  return complete(bytes);
}

std::optional<base::ByteView> FrameReader::complete(base::ByteView& bytes) {
  begun_.reserve(kMaxFrameBytes);
  if (!fill_up_to(kFrameLengthBytes, bytes)) {
    return std::nullopt;
  }
  const std::optional<std::size_t> size = frame_bytes(begun_.data());
  if (!size || !fill_up_to(*size, bytes)) {
    return std::nullopt;
  }
  is_handed_out_ = true;
  return base::ByteView(begun_).subspan(kFrameLengthBytes);
}

bool FrameReader::fill_up_to(std::size_t size, base::ByteView& bytes) {
  const std::size_t wanted = size - std::min(size, begun_.size());
  const base::ByteView taken = bytes.first(std::min(wanted, bytes.size()));
  begun_.insert(begun_.end(), taken.begin(), taken.end());
  bytes = bytes.subspan(taken.size());
  return begun_.size() >= size;
}

void FrameWriter::sent(std::size_t bytes) {
  begin_ += bytes;
  if (begin_ == end_) {
    begin_ = end_ = 0;
  }
}

base::MutableByteView FrameWriter::room(std::size_t most_bytes) {
  if (end_ + kMaxFrameBytes > buffer_.size() && begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ + kMaxFrameBytes > buffer_.size()) {
    const std::size_t size =
        std::max(std::min(buffer_.size() * 2, most_bytes), end_ + kMaxFrameBytes);
    buffer_.reserve(size);  // without this, resize() would double the capacity
    buffer_.resize(size);
  }
  return {buffer_.data() + end_ + kFrameLengthBytes, SPILLWAY_MAX_PACKET};
}

void FrameWriter::commit(std::size_t packet_bytes) {
  base::store_le(buffer_.data() + end_, static_cast<std::uint32_t>(packet_bytes));
  end_ += kFrameLengthBytes + packet_bytes;
}

// ------------------------------------------------------------------ handshake

StreamHandshake StreamHandshake::connecting(const StreamIdentity& own, std::uint16_t to,
                                            const StreamNonce& nonce) {
  StreamHandshake handshake(own, nonce, State::kAwaitsAnswer);
  handshake.peer_ = to;
  std::uint8_t* hello = handshake.hello_.data();
  base::store_le(hello, kMagic);
  base::store_le(hello + 4, kVersion);
  base::store_le(hello + 6, own.rank);
  base::store_le(hello + 8, to);
  base::store_le(hello + 12, own.epoch);
  std::copy(nonce.begin(), nonce.end(), hello + 20);
  handshake.queue_reply(handshake.hello_);
  return handshake;
}

StreamHandshake StreamHandshake::answering(const StreamIdentity& own, const StreamNonce& nonce) {
  return StreamHandshake(own, nonce, State::kAwaitsHello);
}

std::size_t StreamHandshake::awaited_bytes() const {
  switch (state_) {
    case State::kAwaitsHello:
      return kHelloBytes;
    case State::kAwaitsAnswer:
      return kAnswerBytes;
    case State::kAwaitsProof:
      return kProofBytes;
    case State::kDone:
    case State::kRefused:
      break;
  }
  return 0;
}

void StreamHandshake::take(base::ByteView bytes) {
  bytes = bytes.first(std::min(wanted(), bytes.size()));
  received_.insert(received_.end(), bytes.begin(), bytes.end());
  if (bytes.empty() || wanted() > 0) {
    return;
  }
  switch (state_) {
    case State::kAwaitsHello:
      on_hello();
      break;
    case State::kAwaitsAnswer:
      on_answer();
      break;
    case State::kAwaitsProof:
      on_proof();
      break;
    case State::kDone:
    case State::kRefused:
      break;
  }
  received_.clear();
}

void StreamHandshake::on_hello() {
  std::copy(received_.begin(), received_.end(), hello_.begin());
  const std::uint8_t* hello = hello_.data();
  peer_ = base::load_le<std::uint16_t>(hello + 6);
  const bool is_for_us = base::load_le<std::uint32_t>(hello) == kMagic &&
                         base::load_le<std::uint16_t>(hello + 4) == kVersion &&
                         base::load_le<std::uint16_t>(hello + 8) == own_.rank &&
                         base::load_le<std::uint16_t>(hello + 10) == 0 &&
                         base::load_le<std::uint64_t>(hello + 12) == own_.epoch;
  Proof proof;
  if (!is_for_us || peer_ == own_.rank || !prove(kAnswerLabel, nonce_, proof)) {
    state_ = State::kRefused;
    return;
  }
  queue_reply(nonce_);
  queue_reply(proof);
  state_ = State::kAwaitsProof;
}

void StreamHandshake::on_answer() {
  StreamNonce answering;
  std::copy_n(received_.begin(), answering.size(), answering.begin());
  Proof proof;
  if (!is_proved(kAnswerLabel, answering, base::ByteView(received_).subspan(answering.size())) ||
      !prove(kConnectLabel, answering, proof)) {
    state_ = State::kRefused;
    return;
  }
  queue_reply(proof);
  state_ = State::kDone;
}

void StreamHandshake::on_proof() {
  state_ = is_proved(kConnectLabel, nonce_, received_) ? State::kDone : State::kRefused;
}

bool StreamHandshake::prove(wire::KeyLabel label, const StreamNonce& answering,
                            Proof& proof) const {
  std::array<std::uint8_t, kHelloBytes + sizeof(StreamNonce)> salt;
  std::copy(hello_.begin(), hello_.end(), salt.begin());
  std::copy(answering.begin(), answering.end(), salt.begin() + kHelloBytes);
  return wire::derive(own_.key.bytes, salt, label, proof).ok();
}

bool StreamHandshake::is_proved(wire::KeyLabel label, const StreamNonce& answering,
                                base::ByteView proof) const {
  Proof expected;
  return prove(label, answering, expected) && is_equal_in_constant_time(expected, proof);
}

// ------------------------------------------------------------------ the connection

StreamConnection::~StreamConnection() {
  if (fd_.valid()) {
    ::shutdown(fd_.get(), SHUT_RDWR);
  }
}

void StreamConnection::close(int error) {
  state_ = State::kClosed;
  error_ = error;
}

void StreamConnection::on_writable(base::Instant now) {
  if (state_ == State::kConnecting) {
    if (const int error = connect_error(fd()); error != 0) {
      close(error);
      return;
    }
    state_ = State::kHandshake;
  }
  send_handshake(now);
}

void StreamConnection::send_handshake(base::Instant now) {
  if (state_ != State::kHandshake) {
    return;
  }
  if (!handshake_.reply().empty()) {
    const std::size_t written = write(handshake_.reply());
    if (written == 0 && !is_for_later(errno)) {
      close(errno);
      return;
    }
    handshake_.sent(written);
  }
  if (handshake_.state() == StreamHandshake::State::kDone && handshake_.reply().empty()) {
    state_ = State::kOpen;
    begun_ = now;
  }
}

std::size_t StreamConnection::write(base::ByteView bytes) {
  const ssize_t written = ::send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  return written < 0 ? 0 : static_cast<std::size_t>(written);
}

std::size_t StreamConnection::read(base::MutableByteView scratch, base::Instant now,
                                   const PacketHandler& handle) {
  const bool in_handshake = state_ == State::kHandshake;
  const base::MutableByteView wanted =
      in_handshake ? scratch.first(std::min(handshake_.wanted(), scratch.size())) : scratch;
  if (wanted.empty() || (!in_handshake && state_ != State::kOpen)) {
    return 0;
  }
  const ssize_t got = ::recv(fd(), wanted.data(), wanted.size(), 0);
  if (got <= 0) {
    if (got == 0 || !is_for_later(errno)) {
      close(got == 0 ? ECONNRESET : errno);
    }
    return 0;
  }
  const base::ByteView bytes = wanted.first(static_cast<std::size_t>(got));
  in_handshake ? take_handshake(bytes, now) : take_frames(bytes, handle);
  return bytes.size();
}

void StreamConnection::take_handshake(base::ByteView bytes, base::Instant now) {
  handshake_.take(bytes);
  if (handshake_.state() == StreamHandshake::State::kRefused) {
    close(EPROTO);
  } else {
    send_handshake(now);
  }
}

void StreamConnection::take_frames(base::ByteView bytes, const PacketHandler& handle) {
  try {
    while (const std::optional<base::ByteView> packet = frames_.next(bytes)) {
      has_delivered_ = true;
      handle(*packet);
    }
  } catch (...) {
    close(EIO);
    ::shutdown(fd(), SHUT_RDWR);  // wakes the owner, which then finds it closed
    throw;
  }
  if (frames_.is_broken()) {
    close(EPROTO);
  }
}

// ------------------------------------------------------------------ accepting connections

namespace {

constexpr int kHandshakesPerCall = 64;
constexpr int kNewcomersPerCall = 64;
// Pause after a resource ran out that every new connection needs.
constexpr base::Duration kAcceptPause = base::milliseconds(100);

bool has_run_out(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

}  // namespace

base::Result<StreamAcceptor> StreamAcceptor::open(const SocketAddress& address) {
  base::Result<UniqueFd> listener = listen_tcp(address);
  if (!listener.ok()) {
    return listener.status();
  }
  UniqueFd poll(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kListenerId}};
  if (!poll.valid() || ::epoll_ctl(poll.get(), EPOLL_CTL_ADD, listener->get(), &event) != 0) {
    return system_error("wait for connections", errno);
  }
  return StreamAcceptor(std::move(listener).value(), std::move(poll));
}

void StreamAcceptor::begin_epoch(const StreamIdentity& own) {
  own_ = own;
  while (!strangers_.empty()) {
    reject(strangers_.begin()->first);
  }
  sources_ = KnownSources();
}

std::vector<std::unique_ptr<StreamConnection>> StreamAcceptor::take_proved(base::Instant now) {
  std::array<epoll_event, kHandshakesPerCall> events;
  Connections proved;
  const int count = ::epoll_wait(poll_.get(), events.data(), kHandshakesPerCall, 0);
  for (int i = 0; i < count; ++i) {
    // A copy, because the kernel's struct is packed and nothing may refer to its field.
    const std::uint64_t key = events[static_cast<std::size_t>(i)].data.u64;
    if (strangers_.contains(key)) {
      read_handshake(key, now, proved);
    } else {
      accept(now, proved);  // the listener, or a stranger removed earlier in this loop
    }
  }
  return proved;
}

void StreamAcceptor::read_handshake(Id id, base::Instant now, Connections& proved) {
  std::array<std::uint8_t, 64> scratch;  // longer than any handshake message
  const auto found = strangers_.find(id);
  StreamConnection& stranger = *found->second;
  stranger.read(scratch, now, {});
  if (stranger.state() == StreamConnection::State::kOpen) {
    ::epoll_ctl(poll_.get(), EPOLL_CTL_DEL, stranger.fd(), nullptr);
    proved.push_back(std::move(found->second));
    strangers_.erase(found);
    table_.remove(id);
  } else if (stranger.state() == StreamConnection::State::kClosed) {
    reject(id);
  } else if (stranger.has_received_hello()) {
    table_.answered(id);
  }
}

void StreamAcceptor::accept(base::Instant now, Connections& proved) {
  for (int i = 0; i < kNewcomersPerCall; ++i) {
    Accepted accepted = accept_tcp(listener_.get());
    if (has_run_out(accepted.error)) {
      watch_listener(false);  // or it would wake the loop forever; on_timeout() tries again
      next_timeout_ = std::min(next_timeout_, now + kAcceptPause);
    }
    if (!accepted.fd.valid()) {
      return;
    }
    const std::string source = accepted.from.with_port(0).to_string();
    if (!sources_.has(accepted.from.data()) || !make_room(source, now, proved)) {
      ++rejected_;
      continue;
    }
    StreamNonce nonce;
    if (!fill_random(nonce).ok()) {
      return;
    }
    auto stranger = std::make_unique<StreamConnection>(
        std::move(accepted.fd), StreamHandshake::answering(own_, nonce), /*is_ours=*/false, now);
    const Id id = next_id_++;
    epoll_event event{.events = EPOLLIN, .data = {.u64 = id}};
    if (::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, stranger->fd(), &event) == 0) {
      next_timeout_ = std::min(next_timeout_, now + kHelloTimeout);
      strangers_.emplace(id, std::move(stranger));
      table_.add(id, source, now);
    }
  }
}

// False if a stranger from `source` has to be turned away.
bool StreamAcceptor::make_room(const std::string& source, base::Instant now, Connections& proved) {
  const StrangerTable::Room room = table_.room_for(source, now);
  if (!room.evict) {
    return room.is_free;
  }
  read_handshake(*room.evict, now, proved);  // if its proof is here, it believes it is accepted
  if (strangers_.contains(*room.evict)) {
    reject(*room.evict);
  }
  return true;
}

void StreamAcceptor::reject(Id stranger) {
  const auto found = strangers_.find(stranger);
  // Explicit, because a child process may still hold the descriptor and keep it in the set.
  ::epoll_ctl(poll_.get(), EPOLL_CTL_DEL, found->second->fd(), nullptr);
  strangers_.erase(found);
  table_.remove(stranger);
  ++rejected_;
}

void StreamAcceptor::watch_listener(bool watch) {
  is_watched_ = watch;
  epoll_event event{.events = watch ? std::uint32_t{EPOLLIN} : 0, .data = {.u64 = kListenerId}};
  ::epoll_ctl(poll_.get(), EPOLL_CTL_MOD, listener_.get(), &event);
}

void StreamAcceptor::on_timeout(base::Instant now) {
  if (now < next_timeout_) {
    return;
  }
  next_timeout_ = transport::kNever;
  for (auto at = strangers_.begin(); at != strangers_.end();) {
    const auto& [id, stranger] = *at++;
    const base::Instant due =
        stranger->begun() + (stranger->has_received_hello() ? kProofTimeout : kHelloTimeout);
    if (due <= now) {
      reject(id);
    } else {
      next_timeout_ = std::min(next_timeout_, due);
    }
  }
  if (!is_watched_) {
    watch_listener(true);
  }
}

}  // namespace spillway::net
