// SPDX-License-Identifier: Apache-2.0
//
// All checks of this host, in the order in which they are shown. They take milliseconds, or seconds
// if GPU kernels must be compiled. They send packets over loopback only and change nothing but the
// kernel cache.
#pragma once

#include "net/udp_socket.h"
#include "tools/doctor/finding.h"

namespace spillway::doctor {

// `wanted`: the offloads that this host's ranks are to use.
Findings check_this_host(const net::Offloads& wanted);

}  // namespace spillway::doctor
