// SPDX-License-Identifier: Apache-2.0
#include "net/stream_connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "net/tcp_socket.h"

namespace spillway::net {

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
    state_ = State::kGreeting;
  }
  say_greeting(now);
}

void StreamConnection::say_greeting(base::Instant now) {
  if (state_ != State::kGreeting) {
    return;
  }
  if (!greeting_.reply().empty()) {
    const std::size_t written = write(greeting_.reply());
    if (written == 0 && !is_for_later(errno)) {
      close(errno);
      return;
    }
    greeting_.sent(written);
  }
  if (greeting_.state() == Greeting::State::kDone && greeting_.reply().empty()) {
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
  const bool greets = state_ == State::kGreeting;
  const base::MutableByteView wanted =
      greets ? scratch.first(std::min(greeting_.wanted(), scratch.size())) : scratch;
  if (wanted.empty() || (!greets && state_ != State::kOpen)) {
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
  greets ? take_greeting(bytes, now) : take_frames(bytes, handle);
  return bytes.size();
}

void StreamConnection::take_greeting(base::ByteView bytes, base::Instant now) {
  greeting_.take(bytes);
  if (greeting_.state() == Greeting::State::kRefused) {
    close(EPROTO);
  } else {
    say_greeting(now);
  }
}

void StreamConnection::take_frames(base::ByteView bytes, const PacketHandler& handle) {
  try {
    while (const std::optional<base::ByteView> packet = frames_.next(bytes)) {
      has_brought_ = true;
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

}  // namespace spillway::net
