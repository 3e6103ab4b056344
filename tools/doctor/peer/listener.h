// SPDX-License-Identifier: Apache-2.0
//
// `spillway doctor --listen`: a Responder on sockets, for any number of probers. With the necessary
// privileges it also watches the wire for stale packets. The Responder bounds state and the rate of
// answers. Each socket gets its turn after a bounded number of datagrams. One thread.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "net/address.h"
#include "tools/doctor/peer/probe_socket.h"
#include "tools/doctor/peer/responder.h"
#include "tools/doctor/peer/wire_watch.h"

namespace spillway::doctor {

inline constexpr std::uint16_t kDefaultPort = 7078;

class Listener {
 public:
  // `addresses`: at least one.
  static base::Result<Listener> open(std::span<const net::SocketAddress> addresses);
  // Listens on IPv4 and IPv6, or on IPv4 alone if the host has no IPv6.
  static base::Result<Listener> open_everywhere(std::uint16_t port);

  // Runs until `stop_fd` is readable or `end` is reached.
  void run(int stop_fd, base::Instant end);

  std::vector<net::SocketAddress> addresses() const;
  bool watches() const { return !watches_.empty(); }
  const ResponderCounters& counters() const { return responder_.counters(); }

 private:
  Listener(std::vector<ProbeSocket> sockets, std::vector<WireWatch> watches);

  void serve(ProbeSocket& socket);

  std::vector<ProbeSocket> sockets_;
  std::vector<WireWatch> watches_;
  Responder responder_;
};

}  // namespace spillway::doctor
