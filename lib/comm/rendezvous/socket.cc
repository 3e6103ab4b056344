// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous/socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "net/system_call.h"

namespace spillway::runtime {

Door door_of(const net::SocketAddress& address, std::string text) {
  Door door{.address = {}, .size = address.size(), .text = std::move(text)};
  std::memcpy(&door.address, address.data(), address.size());
  return door;
}

namespace {

constexpr std::size_t kReadBytes = 65536;
constexpr int kMaxWaiting = 4096;  // the listen backlog

const sockaddr* plain(const sockaddr_storage& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

int poll_ms(base::Duration patience) {
  return static_cast<int>(std::clamp<std::int64_t>((patience.count() + 999'999) / 1'000'000, 0,
                                                   std::int64_t{3600} * 1000));
}

// An abstract name begins with a zero byte and has no file.
Door local_door(const RendezvousPoint& point) {
  Door door{.address = {}, .size = 0, .text = point.to_string()};
  auto& address = reinterpret_cast<sockaddr_un&>(door.address);
  address.sun_family = AF_UNIX;
  const std::size_t length = std::min(point.local_name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, point.local_name.data(), length);
  door.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return door;
}

base::Status append_doors(const Place& place, std::vector<Door>& doors) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failure = ::getaddrinfo(place.host.c_str(), nullptr, &wanted, &found);
  if (failure != 0) {
    return {base::StatusCode::kUnavailable,
            fmt::format("cannot find the host {}: {}", place.host, ::gai_strerror(failure))};
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    sockaddr_storage storage{};
    std::memcpy(&storage, entry->ai_addr, entry->ai_addrlen);
    const auto address = net::SocketAddress::from(storage).with_port(place.port);
    doors.push_back(door_of(address, place.to_string()));
  }
  return {};
}

bool is_literal(const std::string& host) {
  in6_addr ignored{};
  return ::inet_pton(AF_INET, host.c_str(), &ignored) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &ignored) == 1;
}

// True if all places share one host, given as a literal address.
bool names_one_address(const RendezvousPoint& point) {
  return is_literal(point.places.front().host) &&
         std::all_of(point.places.begin(), point.places.end(),
                     [&](const Place& place) { return place.host == point.places.front().host; });
}

base::Status cannot_listen(const std::string& where, int error) {
  std::string_view hint;
  if (error == EADDRINUSE) {
    hint =
        "another process is there, an old job or a second rank 0 perhaps: end it, or set "
        "SPILLWAY_COMM_ID to another port";
  } else if (error == EADDRNOTAVAIL) {
    hint =
        "that is no address of this host: rank 0 must run where it is, or SPILLWAY_COMM_ID must "
        "name rank 0's host";
  }
  return net::system_error(fmt::format("wait for the other ranks at {}", where), error, hint);
}

base::Result<net::UniqueFd> listen_at_door(const Door& door) {
  net::UniqueFd socket(
      ::socket(door.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int yes = 1;
  const int no = 0;
  if (!socket.valid()) {
    return net::system_error("open a socket for the other ranks", errno);
  }
  if (door.address.ss_family != AF_UNIX) {
    // Allows a port whose last owner has just closed it.
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  }
  if (door.address.ss_family == AF_INET6) {
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
  }
  if (::bind(socket.get(), plain(door.address), door.size) != 0 ||
      ::listen(socket.get(), kMaxWaiting) != 0) {
    return cannot_listen(door.text, errno);
  }
  return socket;
}

// Listens at every address of this host, of both families if it has IPv6.
base::Result<net::UniqueFd> listen_everywhere(const Place& place) {
  const auto both = net::SocketAddress::parse(fmt::format("[::]:{}", place.port));
  base::Result<net::UniqueFd> socket = listen_at_door(door_of(*both, place.to_string()));
  if (socket.ok()) {
    return socket;
  }
  return listen_at_door(door_of(net::SocketAddress().with_port(place.port), place.to_string()));
}

bool of_another_user(const net::UniqueFd& socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  sockaddr_storage own{};
  socklen_t own_size = sizeof(own);
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &own_size) != 0 ||
      own.ss_family != AF_UNIX) {
    return false;
  }
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
         peer.uid != ::geteuid();
}

// TCP may bind a connection to the very port that it connects to, if nothing listens there.
bool is_connected_to_itself(const net::UniqueFd& socket) {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t own_size = sizeof(own);
  socklen_t peer_size = sizeof(peer);
  return ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
         ::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0 &&
         own.ss_family != AF_UNIX &&
         net::SocketAddress::from(own) == net::SocketAddress::from(peer);
}

std::string attempt_at(const Door& door) {
  return fmt::format("connect to {}", door.text);
}

int connection_error(const net::UniqueFd& socket) {
  int error = 0;
  socklen_t size = sizeof(error);
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 ? errno : error;
}

}  // namespace

base::Result<std::vector<Door>> doors_of(const RendezvousPoint& point) {
  if (!point.local_name.empty()) {
    return std::vector<Door>{local_door(point)};
  }
  std::vector<Door> doors;
  base::Status last = base::invalid_argument("there is no place for the ranks to meet");
  for (const Place& place : point.places) {
    const base::Status found = append_doors(place, doors);
    last = found.ok() ? last : found;
  }
  return doors.empty() ? base::Result<std::vector<Door>>(last) : doors;
}

base::Result<net::UniqueFd> listen_exactly(const net::SocketAddress& address) {
  return listen_at_door(door_of(address, address.to_string()));
}

base::Result<Listening> listen_at(const RendezvousPoint& point) {
  if (!point.local_name.empty()) {
    base::Result<net::UniqueFd> socket = listen_at_door(local_door(point));
    return socket.ok()
               ? base::Result<Listening>(Listening{std::move(socket).value(), point.to_string()})
               : socket.status();
  }
  base::Status last = base::invalid_argument("there is no place for the ranks to meet");
  for (const Place& place : point.places) {
    const auto exact = net::SocketAddress::parse(place.to_string());
    base::Result<net::UniqueFd> socket =
        names_one_address(point) && exact.ok() ? listen_exactly(*exact) : listen_everywhere(place);
    if (socket.ok()) {
      return Listening{std::move(socket).value(), place.to_string()};
    }
    last = socket.status();
  }
  return last;
}

bool wait_for(const net::UniqueFd& socket, short events, base::Duration patience) {
  pollfd waiting{socket.get(), events, 0};
  return ::poll(&waiting, 1, poll_ms(patience)) > 0;
}

base::Result<net::UniqueFd> begin_to_connect(const Door& door) {
  net::UniqueFd socket(
      ::socket(door.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) {
    return net::system_error("open a socket for the rendezvous", errno);
  }
  if (::connect(socket.get(), plain(door.address), door.size) != 0 && errno != EINPROGRESS) {
    return net::system_error(attempt_at(door), errno);
  }
  return socket;
}

base::Status finish_connecting(const net::UniqueFd& socket, const Door& door) {
  if (const int error = connection_error(socket); error != 0) {
    return net::system_error(attempt_at(door), error);
  }
  if (is_connected_to_itself(socket)) {
    return net::system_error(attempt_at(door), ECONNREFUSED);
  }
  if (of_another_user(socket)) {
    return {base::StatusCode::kForeign,
            fmt::format("{} belongs to another user's process", door.text)};
  }
  return {};
}

base::Result<net::UniqueFd> connect_to(const Door& door, base::Duration patience) {
  base::Result<net::UniqueFd> socket = begin_to_connect(door);
  if (!socket.ok()) {
    return socket;
  }
  if (!wait_for(*socket, POLLOUT, patience)) {
    return net::system_error(attempt_at(door), ETIMEDOUT);
  }
  const base::Status status = finish_connecting(*socket, door);
  return status.ok() ? std::move(socket) : base::Result<net::UniqueFd>(status);
}

Newcomer accept_from(const net::UniqueFd& listener) {
  sockaddr_storage peer{};
  socklen_t size = sizeof(peer);
  net::UniqueFd socket(::accept4(listener.get(), reinterpret_cast<sockaddr*>(&peer), &size,
                                 SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.valid()) {
    return {.socket = {}, .source = {}, .is_crowded = errno == EMFILE || errno == ENFILE};
  }
  if (of_another_user(socket)) {
    return {};
  }
  const bool has_address = peer.ss_family == AF_INET || peer.ss_family == AF_INET6;
  return {.socket = std::move(socket),
          .source = has_address ? net::SocketAddress::from(peer).with_port(0).to_string() : "",
          .is_crowded = false};
}

StreamState receive_some(const net::UniqueFd& socket, std::vector<std::uint8_t>& to) {
  std::array<std::uint8_t, kReadBytes> part;
  const ssize_t got = ::recv(socket.get(), part.data(), part.size(), MSG_DONTWAIT);
  if (got > 0) {
    to.insert(to.end(), part.begin(), part.begin() + got);
    return StreamState::kOpen;
  }
  const bool later = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  return later ? StreamState::kOpen : StreamState::kClosed;
}

StreamState send_some(const net::UniqueFd& socket, base::ByteView bytes, std::size_t& position) {
  while (position < bytes.size()) {
    const ssize_t sent = ::send(socket.get(), bytes.data() + position, bytes.size() - position,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      const bool later = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
      return later ? StreamState::kOpen : StreamState::kClosed;
    }
    position += static_cast<std::size_t>(sent);
  }
  return StreamState::kOpen;
}

}  // namespace spillway::runtime
