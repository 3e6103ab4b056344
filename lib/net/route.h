// SPDX-License-Identifier: Apache-2.0
//
// The configured route that packets to an address take out of this host, without what the kernel
// has learned about single destinations since. Asked over netlink; no privilege needed, any thread.
#pragma once

#include <optional>

#include "net/address.h"

namespace spillway::net {

struct OutgoingRoute {
  int interface = 0;  // index of the interface
  unsigned mtu = 0;   // of the route itself; 0: the interface's MTU applies
};

// Empty if there is no route, if there are several at once, or if the kernel does not answer.
std::optional<OutgoingRoute> route_to(const SocketAddress& address);

}  // namespace spillway::net
