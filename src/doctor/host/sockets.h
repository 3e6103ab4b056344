// SPDX-License-Identifier: Apache-2.0
//
// What this host's sockets can do: how long their queues may be, which offloads for UDP they have,
// and whether DSCP, ECN and the time of arrival come through.
//
// A process with CAP_NET_ADMIN gets the queues it asks for, whatever the system's limits are.
// Offloads are those that the kernel has, less what the environment turned off (net/udp_socket.h).
// Marks are tried on loopback, over IPv4 and IPv6, so that nothing but this host has a say.
//
// check_...() judge what they are handed and do no I/O beyond HostFiles; try_loopback() sends a few
// datagrams to itself and waits half a second at most for each. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "doctor/finding.h"
#include "doctor/host/host_files.h"
#include "net/udp_socket.h"

namespace spillway::doctor {

// What a rank asks for.
std::size_t wanted_socket_buffer();

Findings check_socket_limits(const HostFiles& files, std::size_t wanted, bool may_exceed);

// `wanted`: what the environment leaves on. `available`: what of it the kernel has.
Findings check_offloads(const net::Offloads& wanted, const net::Offloads& available);

struct LoopbackTrial {
  bool opened = false;  // the host has this family
  unsigned sent = 0;    // values of the TOS byte
  unsigned kept = 0;    // that came back as they were
  bool stamped = false;
};

LoopbackTrial try_loopback(bool ipv6);

// "marks-ipv4" or "marks-ipv6".
Finding check_loopback_marks(const LoopbackTrial& trial, bool ipv6);
Finding check_receive_stamps(const LoopbackTrial& trial);

}  // namespace spillway::doctor
