// SPDX-License-Identifier: Apache-2.0
//
// How a datagram goes: to whom, from which source port, in which traffic class. The transport
// decides it and everybody below only carries it out: net with sockets, the simulator with
// addresses and labels. Datagrams of one size and one route may leave in one call.
//
//   endpoint ──► datagram_port ──► net: datagram_sender ──► socket
//       └──────────────┴─────────► sim: a host's stack ───► packet
//
// A plain value. Control packets are told apart because they may overtake data.
#pragma once

#include <cstdint>

namespace spillway::transport {

struct Route {
  std::uint16_t peer = 0;  // rank it goes to
  std::uint8_t path = 0;   // which of our source ports; ECMP hashes it into a path
  std::uint8_t dscp = 0;
  std::uint8_t ecn = 0;
  bool is_control = false;

  // DSCP and ECN, as in the IP header.
  std::uint8_t tos() const { return static_cast<std::uint8_t>(dscp << 2 | ecn); }

  friend bool operator==(const Route&, const Route&) = default;
};

}  // namespace spillway::transport
