// SPDX-License-Identifier: Apache-2.0
//
// An IPv4 or IPv6 address with a port, written "10.0.0.1:7000" or "[fd00::1]:7000". A plain value.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace spillway::net {

class SocketAddress {
 public:
  // 0.0.0.0:0
  SocketAddress();
  static base::Result<SocketAddress> parse(std::string_view text);
  // The wildcard address of AF_INET or AF_INET6 with port 0: a socket bound to it leaves interface
  // and port to the kernel.
  static SocketAddress any(int family);
  // Converts an address that the kernel filled in, AF_INET or AF_INET6.
  static SocketAddress from(const sockaddr_storage& storage);

  bool is_ipv6() const { return storage_.ss_family == AF_INET6; }
  int family() const { return storage_.ss_family; }
  std::uint16_t port() const;
  SocketAddress with_port(std::uint16_t port) const;

  const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const { return is_ipv6() ? sizeof(sockaddr_in6) : sizeof(sockaddr_in); }

  std::string to_string() const;
  friend bool operator==(const SocketAddress& a, const SocketAddress& b);

 private:
  sockaddr_storage storage_;
};

// Parses "10.0.0.1:7000,10.0.0.2:7000".
base::Result<std::vector<SocketAddress>> parse_addresses(std::string_view text);

}  // namespace spillway::net
