// SPDX-License-Identifier: Apache-2.0
#include "fabric/relay_directory.h"

#include <string_view>

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

RelayDirectory::RelayDirectory(std::span<const PortSpec> ports)
    : hosts_(static_cast<std::uint32_t>(ports.size())) {
  for (sim::HostId host = 0; host < hosts_; ++host) {
    const net::SocketAddress& address = ports[host].deliver;
    by_address_.emplace(key_of(address), host);
    const auto [entry, is_first] = by_ip_.emplace(ip_bytes(address), host);
    if (!is_first) {
      entry->second.reset();
    }
  }
}

std::optional<sim::HostId> RelayDirectory::source_of(const net::SocketAddress& from,
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
  return rank < hosts_ ? std::optional<sim::HostId>(rank) : std::nullopt;
}

}  // namespace spillway::fabric
