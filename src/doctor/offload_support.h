// SPDX-License-Identifier: Apache-2.0
//
// Which of the kernel's offloads for UDP sockets are used: what it has, less what the environment
// turned off (net/udp_socket.h).
#pragma once

#include "doctor/finding.h"
#include "net/udp_socket.h"

namespace spillway::doctor {

// `wanted`: what the environment leaves on. `available`: what of it the kernel has.
Findings check_offloads(const net::Offloads& wanted, const net::Offloads& available);

}  // namespace spillway::doctor
