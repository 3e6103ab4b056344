// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/peer/listener.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/clock.h"
#include "net/system_call.h"

namespace spillway::doctor {
namespace {

constexpr unsigned kMaxDatagramsAtOnce = 256;

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace

Listener::Listener(std::vector<ProbeSocket> sockets, std::vector<WireWatch> watches)
    : sockets_(std::move(sockets)),
      watches_(std::move(watches)),
      responder_(host_name(), !watches_.empty()) {}

base::Result<Listener> Listener::open(std::span<const net::SocketAddress> addresses) {
  std::vector<ProbeSocket> sockets;
  std::vector<WireWatch> watches;
  for (const net::SocketAddress& address : addresses) {
    base::Result<ProbeSocket> socket = ProbeSocket::open(address);
    if (!socket.ok()) {
      return socket.status();
    }
    base::Result<WireWatch> watch = WireWatch::open(address.is_ipv6(), socket->local().port());
    if (watch.ok()) {
      watches.push_back(std::move(watch).value());
    }
    sockets.push_back(std::move(socket).value());
  }
  return Listener(std::move(sockets), std::move(watches));
}

base::Result<Listener> Listener::open_everywhere(std::uint16_t port) {
  const std::array<net::SocketAddress, 2> both = {
      net::SocketAddress::any(AF_INET).with_port(port),
      net::SocketAddress::any(AF_INET6).with_port(port)};
  base::Result<Listener> listener = open(both);
  return listener.ok() ? std::move(listener) : open(std::span(both).first(1));
}

std::vector<net::SocketAddress> Listener::addresses() const {
  std::vector<net::SocketAddress> addresses;
  for (const ProbeSocket& socket : sockets_) {
    addresses.push_back(socket.local());
  }
  return addresses;
}

void Listener::serve(ProbeSocket& socket) {
  const base::MonotonicClock clock;
  for (unsigned i = 0; i < kMaxDatagramsAtOnce; ++i) {
    const std::optional<ProbeArrival> arrival = socket.receive();
    if (!arrival) {
      return;
    }
    const Answer answer =
        responder_.take(*arrival, socket.overflowed(), clock.now(), base::time_of_day().count());
    if (!answer.bytes.empty()) {
      (void)socket.send(answer.bytes, answer.tos, &arrival->from);  // lost if not sendable
    }
  }
}

void Listener::run(int stop_fd, base::Instant end) {
  std::vector<pollfd> waits = {{.fd = stop_fd, .events = POLLIN, .revents = 0}};
  for (const ProbeSocket& socket : sockets_) {
    waits.push_back({.fd = socket.fd(), .events = POLLIN, .revents = 0});
  }
  for (const WireWatch& watch : watches_) {
    waits.push_back({.fd = watch.fd(), .events = POLLIN, .revents = 0});
  }
  const base::MonotonicClock clock;
  for (base::Instant now = clock.now(); now < end; now = clock.now()) {
    const timespec timeout = net::timespec_of(std::min(end - now, base::seconds(3600)));
    (void)::ppoll(waits.data(), waits.size(), &timeout, nullptr);
    if (waits[0].revents != 0) {
      return;
    }
    for (ProbeSocket& socket : sockets_) {
      serve(socket);
    }
    for (WireWatch& watch : watches_) {
      watch.drain([this](const StalePacket& packet) { responder_.take_stale(packet); });
    }
  }
}

}  // namespace spillway::doctor
