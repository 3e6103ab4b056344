// SPDX-License-Identifier: Apache-2.0
#include "switch/fabric/relay_port.h"

#include <string_view>
#include <utility>

#include "wire/packet.h"

namespace spillway::fabric {
namespace {

std::string_view ip_bytes(const net::SocketAddress& address) {
  const auto* data = reinterpret_cast<const char*>(address.data());
  return address.is_ipv6() ? std::string_view(data + offsetof(sockaddr_in6, sin6_addr), 16)
                           : std::string_view(data + offsetof(sockaddr_in, sin_addr), 4);
}

std::string key_of(const net::SocketAddress& address) {
  std::string key(ip_bytes(address));
  key.push_back(static_cast<char>(address.port() >> 8));
  key.push_back(static_cast<char>(address.port() & 0xFF));
  return key;
}

}  // namespace

RelayDirectory::RelayDirectory(std::span<const PortAttachment> ports)
    : hosts_(static_cast<std::uint32_t>(ports.size())) {
  for (scenario::HostId host = 0; host < hosts_; ++host) {
    const net::SocketAddress& address = ports[host].deliver;
    by_address_.emplace(key_of(address), host);
    const auto [entry, is_first] = by_ip_.emplace(ip_bytes(address), host);
    if (!is_first) {
      entry->second.reset();
    }
  }
}

std::optional<scenario::HostId> RelayDirectory::source_of(const net::SocketAddress& from,
                                                          base::ByteView payload) const {
  if (const auto exact = by_address_.find(key_of(from)); exact != by_address_.end()) {
    return exact->second;
  }
  if (const auto same_ip = by_ip_.find(ip_bytes(from));
      same_ip != by_ip_.end() && same_ip->second) {
    return same_ip->second;
  }
  if (payload.size() < sizeof(spillway_packet_header)) {
    return std::nullopt;
  }
  const auto rank =
      base::load_le<std::uint16_t>(&payload[offsetof(spillway_packet_header, source)]);
  return rank < hosts_ ? std::optional<scenario::HostId>(rank) : std::nullopt;
}

RelayPort::RelayPort(net::UdpSocket socket, const PortAttachment& attachment, scenario::HostId host,
                     const RelayDirectory& directory)
    : Port(SPILLWAY_MAX_PACKET, SPILLWAY_MAX_PACKET, attachment.deliver),
      socket_(std::move(socket)),
      host_(host),
      directory_(directory) {}

base::Result<std::unique_ptr<RelayPort>> RelayPort::open(const PortAttachment& attachment,
                                                         scenario::HostId host,
                                                         const RelayDirectory& directory) {
  base::Result<net::UdpSocket> socket = net::UdpSocket::open(attachment.listen);
  if (!socket.ok()) {
    return socket.status();
  }
  socket.value().tell_about_arrivals(/*gro=*/false);
  socket.value().size_buffers(kSocketBufferBytes);
  return std::unique_ptr<RelayPort>(
      new RelayPort(std::move(socket).value(), attachment, host, directory));
}

// A datagram longer than any Spillway packet was cut by the buffer. What is left may look like a
// Spillway packet to Intake, so it gets nothing.
void RelayPort::take(const Received& received, Intake& intake) {
  const net::SocketAddress from = net::SocketAddress::from(*received.from);
  const base::ByteView payload = received.is_cut ? base::ByteView() : received.bytes;
  intake.take_datagram({.from = directory_.source_of(from, payload),
                        .to = host_,
                        .tos = received.notes.tos,
                        .label = from.port(),
                        .payload = payload},
                       received.notes.at);
}

void RelayPort::write(const Departure& departure) {
  const auto tos = static_cast<std::uint8_t>((departure.dscp << 2) | departure.ecn);
  const base::MutableByteView datagram =
      out_.add(socket_.fd(), departure.bytes.size(), tos, departure.due);
  base::copy_bytes(departure.bytes.data(), departure.bytes.size(), datagram.data());
}

PortCounters RelayPort::counters() {
  return {.out = out_.counters(), .missed = in_.overflowed()};
}

}  // namespace spillway::fabric
