// SPDX-License-Identifier: Apache-2.0
#include "net/stream_door.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace spillway::net {
namespace {

constexpr int kVisitsPerCall = 64;
constexpr int kNewcomersPerCall = 64;
// Pause after a resource ran out that every new connection needs.
constexpr base::Duration kDoorPause = base::milliseconds(100);

bool has_run_out(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

}  // namespace

base::Result<StreamDoor> StreamDoor::open(const SocketAddress& address, const TcpOptions& options) {
  base::Result<UniqueFd> door = listen_tcp(address, options);
  if (!door.ok()) {
    return door.status();
  }
  UniqueFd poll(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kDoor}};
  if (!poll.valid() || ::epoll_ctl(poll.get(), EPOLL_CTL_ADD, door->get(), &event) != 0) {
    return system_error("wait for connections", errno);
  }
  return StreamDoor(std::move(door).value(), std::move(poll));
}

void StreamDoor::begin_epoch(const StreamIdentity& own) {
  own_ = own;
  while (!strangers_.empty()) {
    turn_away(strangers_.begin()->first);
  }
  sources_ = KnownSources();
}

std::vector<std::unique_ptr<StreamConnection>> StreamDoor::let_in(base::Instant now) {
  std::array<epoll_event, kVisitsPerCall> events;
  Connections known;
  const int count = ::epoll_wait(poll_.get(), events.data(), kVisitsPerCall, 0);
  for (int i = 0; i < count; ++i) {
    // A copy, because the kernel's struct is packed and nothing may refer to its field.
    const std::uint64_t key = events[static_cast<std::size_t>(i)].data.u64;
    if (strangers_.contains(key)) {
      hear(key, now, known);
    } else {
      accept(now, known);  // the door; or a stranger removed earlier in this loop
    }
  }
  return known;
}

void StreamDoor::hear(Id id, base::Instant now, Connections& known) {
  std::array<std::uint8_t, 64> words;  // longer than any greeting
  const auto found = strangers_.find(id);
  StreamConnection& stranger = *found->second;
  stranger.read(words, now, {});
  if (stranger.state() == StreamConnection::State::kOpen) {
    ::epoll_ctl(poll_.get(), EPOLL_CTL_DEL, stranger.fd(), nullptr);
    known.push_back(std::move(found->second));
    strangers_.erase(found);
    book_.remove(id);
  } else if (stranger.state() == StreamConnection::State::kClosed) {
    turn_away(id);
  } else if (stranger.has_said_hello()) {
    book_.answered(id);
  }
}

void StreamDoor::accept(base::Instant now, Connections& known) {
  for (int i = 0; i < kNewcomersPerCall; ++i) {
    Accepted accepted = accept_tcp(door_.get());
    if (has_run_out(accepted.error)) {
      watch_door(false);  // or it would wake the loop forever; look() tries again
      next_look_ = std::min(next_look_, now + kDoorPause);
    }
    if (!accepted.fd.valid()) {
      return;
    }
    const std::string source = accepted.from.with_port(0).to_string();
    if (!sources_.has(accepted.from.data()) || !make_room(source, now, known)) {
      ++turned_away_;
      continue;
    }
    StreamNonce nonce;
    if (!fill_random(nonce).ok()) {
      return;
    }
    auto stranger = std::make_unique<StreamConnection>(
        std::move(accepted.fd), Greeting::answering(own_, nonce), /*is_ours=*/false, now);
    const Id id = next_id_++;
    epoll_event event{.events = EPOLLIN, .data = {.u64 = id}};
    if (::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, stranger->fd(), &event) == 0) {
      next_look_ = std::min(next_look_, now + kGreetingPatience);
      strangers_.emplace(id, std::move(stranger));
      book_.add(id, source, now);
    }
  }
}

// False if a stranger from `source` has to be turned away.
bool StreamDoor::make_room(const std::string& source, base::Instant now, Connections& known) {
  const StrangerBook::Room room = book_.room_for(source, now);
  if (!room.leaves) {
    return room.is_free;
  }
  hear(*room.leaves, now, known);  // if its proof is here, it believes it is accepted
  if (strangers_.contains(*room.leaves)) {
    turn_away(*room.leaves);
  }
  return true;
}

void StreamDoor::turn_away(Id stranger) {
  const auto found = strangers_.find(stranger);
  // Explicit, because a child process may still hold the descriptor and keep it in the set.
  ::epoll_ctl(poll_.get(), EPOLL_CTL_DEL, found->second->fd(), nullptr);
  strangers_.erase(found);
  book_.remove(stranger);
  ++turned_away_;
}

void StreamDoor::watch_door(bool watch) {
  is_watched_ = watch;
  epoll_event event{.events = watch ? std::uint32_t{EPOLLIN} : 0, .data = {.u64 = kDoor}};
  ::epoll_ctl(poll_.get(), EPOLL_CTL_MOD, door_.get(), &event);
}

void StreamDoor::look(base::Instant now) {
  if (now < next_look_) {
    return;
  }
  next_look_ = transport::kNever;
  for (auto at = strangers_.begin(); at != strangers_.end();) {
    const auto& [id, stranger] = *at++;
    const base::Instant due =
        stranger->begun() + (stranger->has_said_hello() ? kProofPatience : kGreetingPatience);
    if (due <= now) {
      turn_away(id);
    } else {
      next_look_ = std::min(next_look_, due);
    }
  }
  if (!is_watched_) {
    watch_door(true);
  }
}

}  // namespace spillway::net
