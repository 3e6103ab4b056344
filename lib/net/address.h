// SPDX-License-Identifier: Apache-2.0
//
// Addresses, and how packets leave this host.
//
// SocketAddress: an IPv4 or IPv6 address with a port, written "10.0.0.1:7000" or "[fd00::1]:7000".
// A plain value. KnownSources: the set of hosts whose datagrams and connections are accepted.
//
// Interfaces, routes and path MTUs are those of the caller's network namespace. They are asked by
// system calls, because /sys may show another namespace. No privilege needed; any thread.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
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

// The hosts that may send to this rank: those of its peers. Compared by IP address alone, because a
// peer sends from several ports and only one is known. Off-path strangers are dropped before
// anything is read; a packet with a forged source address still fails the check of its tag.
//
// A peer that listens on the wildcard address may send from any of its addresses. With such a peer,
// every source is accepted. One thread.
class KnownSources {
 public:
  void add(const SocketAddress& address) {
    const Key key = key_of(address.data());
    takes_any_ = takes_any_ || key == Key{};
    known_.insert(key);
    latest_ = key;
  }

  // True if the source address is a peer's host.
  bool has(const sockaddr* from) {
    if (takes_any_) {
      return true;
    }
    const Key key = key_of(from);
    if (key == latest_) {
      return true;
    }
    if (!known_.contains(key)) {
      return false;
    }
    latest_ = key;
    return true;
  }

 private:
  using Key = std::array<std::uint8_t, 16>;

  static Key key_of(const sockaddr* address) {
    Key key{};
    if (address->sa_family == AF_INET6) {
      std::memcpy(key.data(), &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, 16);
    } else if (address->sa_family == AF_INET) {
      std::memcpy(key.data(), &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, 4);
    }
    return key;
  }

  std::set<Key> known_;
  Key latest_{};  // found or added most recently
  bool takes_any_ = false;
};

// ------------------------------------------------------------------ interfaces

struct InterfaceAddress {
  std::string name{};  // the interface's name; one interface may have several addresses
  bool up = true;
  bool loopback = false;
  SocketAddress address{};  // port 0
};

// All IPv4 and IPv6 addresses, in the kernel's order.
base::Result<std::vector<InterfaceAddress>> interface_addresses();

// Includes interfaces without an address.
std::vector<std::string> interface_names();
// The interface that has this address; empty if none has.
std::string interface_with(const SocketAddress& address);
// Empty if no interface has this index.
std::string interface_name(int index);

std::optional<unsigned> interface_mtu(const std::string& name);
bool is_up_and_outward(const std::string& name);  // up, and not loopback
bool has_lro(const std::string& name);

// ------------------------------------------------------------------ routes

// The configured route to an address, without exceptions that the kernel has learned for single
// destinations.
struct OutgoingRoute {
  int interface = 0;  // index of the interface
  unsigned mtu = 0;   // of the route itself; 0: the interface's MTU applies
};

// Empty if there is no route, if there are several at once, or if the kernel does not answer.
std::optional<OutgoingRoute> route_to(const SocketAddress& address);

// ------------------------------------------------------------------ MTU

// This host decides by the MTU of the outgoing interface, or less if an administrator's route says
// so. It ignores ICMP messages from routers, because anybody can forge them. The transport finds
// out with its own packets whether the rest of the path takes as much.

// Largest IP packet in bytes, header included, that may leave from `local` to `peer`.
base::Result<unsigned> path_mtu(const SocketAddress& local, const SocketAddress& peer);

// The kernel's estimate for the whole path, which includes what ICMP messages claim.
base::Result<unsigned> kernel_path_mtu(const SocketAddress& local, const SocketAddress& peer);

// Bytes of UDP payload that fit `mtu`, at most SPILLWAY_MAX_PACKET. Fails if none fits.
base::Result<unsigned> datagram_limit(unsigned mtu, const SocketAddress& peer);

}  // namespace spillway::net
