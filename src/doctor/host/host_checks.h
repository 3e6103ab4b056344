// SPDX-License-Identifier: Apache-2.0
//
// All checks of this host, in the order in which they are shown. Takes milliseconds, sends packets
// over loopback only and changes nothing.
#pragma once

#include "doctor/finding.h"
#include "net/udp_socket.h"

namespace spillway::doctor {

// `wanted`: the offloads that the ranks of this host are to use.
Findings check_this_host(const net::Offloads& wanted);

}  // namespace spillway::doctor
