// SPDX-License-Identifier: Apache-2.0
//
// The hosts that datagrams may come from: the peers' hosts. Compared by IP address alone, because a
// peer sends from several ports and only one is known. Off-path strangers are dropped before
// anything is read; a forged source address still fails the packets' tags.
//
// A peer that listens on the wildcard address may send from any of its addresses: with such a peer,
// nobody is a stranger. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <set>

#include "net/address.h"

namespace spillway::net {

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

}  // namespace spillway::net
