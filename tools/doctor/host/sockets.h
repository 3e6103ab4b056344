// SPDX-License-Identifier: Apache-2.0
//
// What this host's sockets can do: how long their queues may be, which UDP offloads they have, and
// whether DSCP, ECN and arrival time stamps come through.
//
// A process with CAP_NET_ADMIN gets the queues it asks for, whatever the system's limits. The
// offloads are the kernel's, without those that the environment turned off (net/udp_socket.h).
// Marks are tried on loopback, over IPv4 and IPv6, so that only this host affects the result.
//
// check_...() judge their arguments and do no I/O beyond HostFiles. try_loopback() sends a few
// datagrams to itself and waits at most half a second for each. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "net/udp_socket.h"
#include "tools/doctor/finding.h"
#include "tools/doctor/host/host_files.h"

namespace spillway::doctor {

// Bytes of socket buffer that a rank asks for.
std::size_t wanted_socket_buffer();

Findings check_socket_limits(const HostFiles& files, std::size_t wanted, bool may_exceed);

// `wanted`: offloads that the environment leaves on. `available`: those of them that the kernel
// has.
Findings check_offloads(const net::Offloads& wanted, const net::Offloads& available);

struct LoopbackTrial {
  bool opened = false;  // the host has this address family
  unsigned sent = 0;    // values of the TOS byte
  unsigned kept = 0;    // values that arrived unchanged
  bool stamped = false;
};

LoopbackTrial try_loopback(bool ipv6);

// The finding's check is "marks-ipv4" or "marks-ipv6".
Finding check_loopback_marks(const LoopbackTrial& trial, bool ipv6);
Finding check_receive_stamps(const LoopbackTrial& trial);

}  // namespace spillway::doctor
