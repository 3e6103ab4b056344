// SPDX-License-Identifier: Apache-2.0
//
// Whether the system's limits let a rank have the socket queues it asks for. A process with
// CAP_NET_ADMIN gets them whatever the limits are.
#pragma once

#include <cstddef>

#include "doctor/finding.h"
#include "doctor/host_files.h"

namespace spillway::doctor {

// What a rank asks for.
std::size_t wanted_socket_buffer();

Findings check_socket_limits(const HostFiles& files, std::size_t wanted, bool may_exceed);

}  // namespace spillway::doctor
