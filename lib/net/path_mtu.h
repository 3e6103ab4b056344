// SPDX-License-Identifier: Apache-2.0
//
// How long a datagram to a peer may be, as far as this host decides: the MTU of the outgoing
// interface, or less if an administrator's route says so. ICMP messages from routers are ignored,
// because anybody can forge them. The transport finds out by its packets whether the rest of the
// path takes as much.
#pragma once

#include "base/status.h"
#include "net/address.h"

namespace spillway::net {

// Largest IP packet in bytes, header included, that may leave from `local` to `peer`.
base::Result<unsigned> path_mtu(const SocketAddress& local, const SocketAddress& peer);

// The kernel's belief for the whole path, including what ICMP told it.
base::Result<unsigned> believed_path_mtu(const SocketAddress& local, const SocketAddress& peer);

// Bytes of UDP payload that fit `mtu`, at most SPILLWAY_MAX_PACKET. Fails if none fits.
base::Result<unsigned> datagram_limit(unsigned mtu, const SocketAddress& peer);

}  // namespace spillway::net
