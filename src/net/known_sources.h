// SPDX-License-Identifier: Apache-2.0
//
// The hosts that datagrams may come from: those of the peers. Compared by IP address alone, because
// a peer sends from several ports and is met by one. That keeps strangers off the path out before
// anything is looked at; who forges a peer's address meets the packets' tags.
//
// A peer that listens at all of its addresses may send from any: with one of those nobody is a
// stranger. One thread.
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

  // Whether a datagram from there is a peer's, as far as its host tells.
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
  Key latest_{};  // found or added last
  bool takes_any_ = false;
};

}  // namespace spillway::net
