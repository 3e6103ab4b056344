// SPDX-License-Identifier: Apache-2.0
//
// The route that packets to an address take out of this host, as it was configured: without what
// the kernel has learned about single destinations since. Asked over netlink; no privilege needed,
// any thread.
#pragma once

#include <optional>

#include "net/address.h"

namespace spillway::net {

struct OutgoingRoute {
  int interface = 0;  // its index
  unsigned mtu = 0;   // of the route itself; 0: the interface's
};

// Nothing where there is none, or several at once, or the kernel does not say.
std::optional<OutgoingRoute> route_to(const SocketAddress& address);

}  // namespace spillway::net
