// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/listener.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "net/system_call.h"
#include "tools/doctor/trim_probe.h"

namespace spillway::doctor {

ProberTable::Prober* ProberTable::find(std::uint64_t session) {
  const auto found = std::find_if(probers_.begin(), probers_.end(),
                                  [&](const Prober& one) { return one.session == session; });
  return found == probers_.end() ? nullptr : &*found;
}

ProberTable::Prober* ProberTable::find_tag(std::uint32_t tag) {
  const auto found = std::find_if(probers_.begin(), probers_.end(), [&](const Prober& one) {
    return static_cast<std::uint32_t>(one.session) == tag;
  });
  return found == probers_.end() ? nullptr : &*found;
}

ProberTable::Prober* ProberTable::begin(std::uint64_t session, base::Instant now) {
  Prober* place = find(session);
  if (place == nullptr && probers_.size() < kMaxProbers) {
    place = &probers_.emplace_back();
  }
  if (place == nullptr) {
    const auto oldest =
        std::min_element(probers_.begin(), probers_.end(),
                         [](const Prober& a, const Prober& b) { return a.heard < b.heard; });
    place = now - oldest->heard >= kKept ? &*oldest : nullptr;
  }
  if (place != nullptr) {
    *place = Prober{.session = session, .heard = now};
  }
  return place;
}

Responder::Responder(std::string host, bool watches) : host_(plain_name(host)), watches_(watches) {}

Reply Responder::take(const ProbeArrival& arrival, std::uint64_t overflowed, base::Instant now,
                      std::int64_t wall_now) {
  const std::optional<ProbePacket> request = read_probe(arrival.bytes);
  if (!request || !is_request(request->type)) {
    take_burst(arrival, now);
    return {};
  }
  if (!limit_.may_send(now)) {
    ++counters_.limited;
    return {};
  }
  Reply reply = reply_to_request(*request, arrival, overflowed, now, wall_now);
  if (reply.bytes.empty()) {
    ++counters_.rejected;
    return {};
  }
  limit_.sent(base::bytes(static_cast<std::int64_t>(reply.bytes.size())), now);
  ++counters_.answered;
  return reply;
}

Reply Responder::reply_to_request(const ProbePacket& request, const ProbeArrival& arrival,
                                  std::uint64_t overflowed, base::Instant now,
                                  std::int64_t wall_now) {
  ProberTable::Prober* prober = nullptr;
  if (request.type == ProbeType::kStart) {
    prober = probers_.begin(request.session, now);
  } else if (request.type == ProbeType::kSummary) {
    prober = probers_.find(request.session);
  }
  if (prober == nullptr && request.type != ProbeType::kEcho) {
    return {};
  }
  ProbePacket packet = request;
  packet.type = reply_to(request.type);
  packet.tos = arrival.tos;
  packet.received_ns = arrival.wall_ns;
  packet.replied_ns = wall_now;
  Reply reply{.tos = request.reply_tos};
  reply.bytes.resize(request.type == ProbeType::kSummary ? kSummaryBytes : kProbeBytes);
  write_probe(packet, reply.bytes);
  if (request.type == ProbeType::kStart) {
    prober->overflowed_before = overflowed;
  } else if (request.type == ProbeType::kSummary) {
    ArrivalSummary summary = prober->summary;
    summary.watches = watches_;
    summary.host = host_;
    summary.overflowed = static_cast<std::uint32_t>(overflowed - prober->overflowed_before);
    write_summary(summary, reply.bytes);
  }
  return reply;
}

void Responder::take_burst(const ProbeArrival& arrival, base::Instant now) {
  const std::optional<std::uint32_t> tag = burst_tag_of(arrival.bytes);
  ProberTable::Prober* prober = tag ? probers_.find_tag(*tag) : nullptr;
  if (prober == nullptr) {
    ++counters_.garbage;
    return;
  }
  prober->heard = now;
  prober->summary.count(arrival.bytes.size(), arrival.tos >> 2);
  ++counters_.counted;
}

void Responder::take_stale(const StalePacket& packet) {
  const std::optional<std::uint32_t> tag = burst_tag_of(packet.payload);
  if (ProberTable::Prober* prober = tag ? probers_.find_tag(*tag) : nullptr) {
    prober->summary.count_stale(packet.frame_bytes, packet.interface);
  }
}

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
    const Reply reply =
        responder_.take(*arrival, socket.overflowed(), clock.now(), base::time_of_day().count());
    if (!reply.bytes.empty()) {
      (void)socket.send(reply.bytes, reply.tos, &arrival->from);  // lost if not sendable
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
