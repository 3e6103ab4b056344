// SPDX-License-Identifier: Apache-2.0
//
// How long a datagram to a peer may be. The kernel knows the MTU of the path as far as it has been
// told: that of the interface, less where a router said so (ICMP). Sockets never fragment, so a
// datagram that is longer after all is refused, not split.
#pragma once

#include "base/status.h"
#include "net/address.h"

namespace spillway::net {

// Bytes of an IP packet, its header included, on the path from `local` to `peer`.
base::Result<unsigned> path_mtu(const SocketAddress& local, const SocketAddress& peer);

// Bytes of UDP payload that fit `mtu`, at most SPILLWAY_MAX_PACKET. A sentence where no Spillway
// packet fits.
base::Result<unsigned> datagram_limit(unsigned mtu, const SocketAddress& peer);

}  // namespace spillway::net
