// SPDX-License-Identifier: Apache-2.0
//
// What the network and the kernel said about datagrams that left a socket: ICMP messages with the
// beginning of the datagram they are about. Anybody can send such a message, so none is believed
// for itself: the quote is what a caller may verify.
//
// A flood of them is cheap to send: one call of read() takes at most kMaxErrorsRead and leaves the
// rest for later. One thread.
#pragma once

#include <cstdint>
#include <functional>

#include "base/bytes.h"
#include "net/address.h"
#include "net/udp_socket.h"

namespace spillway::net {

struct ErrorCounters {
  std::uint64_t refusals = 0;         // of ports, about datagrams of ours
  std::uint64_t forged_refusals = 0;  // about datagrams that we did not send, or long ago
  std::uint64_t ignored_icmp = 0;     // all others that came from the network: too big, no route...
};

struct SocketError {
  int error = 0;              // an errno: ECONNREFUSED for a port with nobody behind it
  bool from_network = false;  // not by this host's own kernel
  SocketAddress to{};         // where the datagram went
  base::ByteView quoted{};    // its beginning; until the handler returns
};
using ErrorHandler = std::function<void(const SocketError&)>;

inline constexpr int kMaxErrorsRead = 64;

// Hands on what waits at a socket that tells about errors, and clears the error that the kernel
// would hand to the next call.
void read_errors(const UdpSocket& socket, const ErrorHandler& handle);

}  // namespace spillway::net
