// SPDX-License-Identifier: Apache-2.0
//
// Errors about datagrams that left a socket, from the network and the kernel: ICMP messages with
// the beginning of the datagram they are about. Anybody can send such a message, so none is
// believed by itself: callers can verify the quote.
//
// ICMP floods are cheap to send, so read_errors() takes at most kMaxErrorsRead per call and leaves
// the rest for later. One thread.
#pragma once

#include <cstdint>
#include <functional>

#include "base/bytes.h"
#include "net/address.h"
#include "net/udp_socket.h"

namespace spillway::net {

struct ErrorCounters {
  std::uint64_t refusals = 0;         // closed ports, about datagrams of ours
  std::uint64_t forged_refusals = 0;  // about datagrams that we never sent, or sent long ago
  std::uint64_t ignored_icmp = 0;     // other errors from the network: too big, no route...
};

struct SocketError {
  int error = 0;              // an errno: ECONNREFUSED if the port is closed
  bool from_network = false;  // false: from this host's own kernel
  SocketAddress to{};         // where the datagram went
  base::ByteView quoted{};    // its beginning; valid until the handler returns
};
using ErrorHandler = std::function<void(const SocketError&)>;

inline constexpr int kMaxErrorsRead = 64;

// Passes on the errors waiting at a socket that reports errors (tell_about_errors), and clears the
// error that the kernel would return from the next call.
void read_errors(const UdpSocket& socket, const ErrorHandler& handle);

}  // namespace spillway::net
