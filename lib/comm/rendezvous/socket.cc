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

namespace spillway::comm {

StreamAddress stream_address_of(const net::SocketAddress& address, std::string text) {
  StreamAddress where{.address = {}, .size = address.size(), .text = std::move(text)};
  std::memcpy(&where.address, address.data(), address.size());
  return where;
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
StreamAddress unix_address_of(const launch::RendezvousPoint& point) {
  StreamAddress where{.address = {}, .size = 0, .text = point.to_string()};
  auto& address = reinterpret_cast<sockaddr_un&>(where.address);
  address.sun_family = AF_UNIX;
  const std::size_t length = std::min(point.local_name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, point.local_name.data(), length);
  where.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return where;
}

base::Status append_addresses(const launch::Place& place, std::vector<StreamAddress>& addresses) {
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
    addresses.push_back(stream_address_of(address, place.to_string()));
  }
  return {};
}

bool is_literal(const std::string& host) {
  in6_addr ignored{};
  return ::inet_pton(AF_INET, host.c_str(), &ignored) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &ignored) == 1;
}

// True if all places share one host, given as a literal address.
bool names_one_address(const launch::RendezvousPoint& point) {
  return is_literal(point.places.front().host) &&
         std::all_of(point.places.begin(), point.places.end(), [&](const launch::Place& place) {
           return place.host == point.places.front().host;
         });
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

base::Result<net::UniqueFd> listen_on(const StreamAddress& where) {
  net::UniqueFd socket(
      ::socket(where.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int yes = 1;
  const int no = 0;
  if (!socket.valid()) {
    return net::system_error("open a socket for the other ranks", errno);
  }
  if (where.address.ss_family != AF_UNIX) {
    // Allows a port whose last owner has just closed it.
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  }
  if (where.address.ss_family == AF_INET6) {
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
  }
  if (::bind(socket.get(), plain(where.address), where.size) != 0 ||
      ::listen(socket.get(), kMaxWaiting) != 0) {
    return cannot_listen(where.text, errno);
  }
  return socket;
}

// Listens at every address of this host, of both families if it has IPv6.
base::Result<net::UniqueFd> listen_everywhere(const launch::Place& place) {
  const auto both = net::SocketAddress::parse(fmt::format("[::]:{}", place.port));
  base::Result<net::UniqueFd> socket = listen_on(stream_address_of(*both, place.to_string()));
  if (socket.ok()) {
    return socket;
  }
  return listen_on(
      stream_address_of(net::SocketAddress().with_port(place.port), place.to_string()));
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

std::string attempt_at(const StreamAddress& where) {
  return fmt::format("connect to {}", where.text);
}

int connection_error(const net::UniqueFd& socket) {
  int error = 0;
  socklen_t size = sizeof(error);
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 ? errno : error;
}

}  // namespace

base::Result<std::vector<StreamAddress>> stream_addresses_of(const launch::RendezvousPoint& point) {
  if (!point.local_name.empty()) {
    return std::vector<StreamAddress>{unix_address_of(point)};
  }
  std::vector<StreamAddress> addresses;
  base::Status last = base::invalid_argument("there is no place for the ranks to meet");
  for (const launch::Place& place : point.places) {
    const base::Status found = append_addresses(place, addresses);
    last = found.ok() ? last : found;
  }
  return addresses.empty() ? base::Result<std::vector<StreamAddress>>(last) : addresses;
}

base::Result<net::UniqueFd> listen_exactly(const net::SocketAddress& address) {
  return listen_on(stream_address_of(address, address.to_string()));
}

base::Result<Listening> listen_at(const launch::RendezvousPoint& point) {
  if (!point.local_name.empty()) {
    base::Result<net::UniqueFd> socket = listen_on(unix_address_of(point));
    return socket.ok()
               ? base::Result<Listening>(Listening{std::move(socket).value(), point.to_string()})
               : socket.status();
  }
  base::Status last = base::invalid_argument("there is no place for the ranks to meet");
  for (const launch::Place& place : point.places) {
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

base::Result<net::UniqueFd> begin_to_connect(const StreamAddress& where) {
  net::UniqueFd socket(
      ::socket(where.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) {
    return net::system_error("open a socket for the rendezvous", errno);
  }
  if (::connect(socket.get(), plain(where.address), where.size) != 0 && errno != EINPROGRESS) {
    return net::system_error(attempt_at(where), errno);
  }
  return socket;
}

base::Status finish_connecting(const net::UniqueFd& socket, const StreamAddress& where) {
  if (const int error = connection_error(socket); error != 0) {
    return net::system_error(attempt_at(where), error);
  }
  if (is_connected_to_itself(socket)) {
    return net::system_error(attempt_at(where), ECONNREFUSED);
  }
  if (of_another_user(socket)) {
    return {base::StatusCode::kForeign,
            fmt::format("{} belongs to another user's process", where.text)};
  }
  return {};
}

base::Result<net::UniqueFd> connect_to(const StreamAddress& where, base::Duration patience) {
  base::Result<net::UniqueFd> socket = begin_to_connect(where);
  if (!socket.ok()) {
    return socket;
  }
  if (!wait_for(*socket, POLLOUT, patience)) {
    return net::system_error(attempt_at(where), ETIMEDOUT);
  }
  const base::Status status = finish_connecting(*socket, where);
  return status.ok() ? std::move(socket) : base::Result<net::UniqueFd>(status);
}

AcceptedClient accept_from(const net::UniqueFd& listener) {
  sockaddr_storage peer{};
  socklen_t size = sizeof(peer);
  net::UniqueFd socket(::accept4(listener.get(), reinterpret_cast<sockaddr*>(&peer), &size,
                                 SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.valid()) {
    return {.socket = {}, .source = {}, .is_out_of_files = errno == EMFILE || errno == ENFILE};
  }
  if (of_another_user(socket)) {
    return {};
  }
  const bool has_address = peer.ss_family == AF_INET || peer.ss_family == AF_INET6;
  return {.socket = std::move(socket),
          .source = has_address ? net::SocketAddress::from(peer).with_port(0).to_string() : "",
          .is_out_of_files = false};
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

}  // namespace spillway::comm
