// SPDX-License-Identifier: Apache-2.0
//
// How long a datagram to a peer may be, as far as this host decides: the MTU of the interface that
// it leaves by, or less where an administrator's route says so. What routers are said to have said
// (ICMP) is left out, because anybody can say it; whether the rest of the path takes as much shows
// once packets travel.
#pragma once

#include "base/status.h"
#include "net/address.h"

namespace spillway::net {

// Bytes of an IP packet, its header included, that may leave from `local` to `peer`.
base::Result<unsigned> path_mtu(const SocketAddress& local, const SocketAddress& peer);

// The same as the kernel believes it for the whole path, with what ICMP told it.
base::Result<unsigned> believed_path_mtu(const SocketAddress& local, const SocketAddress& peer);

// Bytes of UDP payload that fit `mtu`, at most SPILLWAY_MAX_PACKET. A sentence where no Spillway
// packet fits.
base::Result<unsigned> datagram_limit(unsigned mtu, const SocketAddress& peer);

}  // namespace spillway::net
