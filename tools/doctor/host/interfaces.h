// SPDX-License-Identifier: Apache-2.0
//
// The host's network interfaces: how long their frames may be, and whether the card merges packets.
// LRO merges arriving packets into longer ones and forgets their boundaries, so trimmed packets end
// up inside others.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tools/doctor/finding.h"

namespace spillway::doctor {

struct InterfaceState {
  std::string name;
  unsigned mtu = 0;
  bool lro = false;
};

// The interfaces that are up in the caller's network namespace, without loopback.
std::vector<InterfaceState> up_interfaces();

// Returns at least one finding.
Findings check_interfaces(std::span<const InterfaceState> interfaces);

}  // namespace spillway::doctor
