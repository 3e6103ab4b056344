// SPDX-License-Identifier: Apache-2.0
//
// The interfaces that packets leave and arrive by: how long their frames may be, and whether the
// card joins packets behind our back. LRO joins what arrives into longer packets and forgets where
// they were joined, so cut packets end up inside others.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "doctor/finding.h"

namespace spillway::doctor {

struct InterfaceState {
  std::string name;
  unsigned mtu = 0;
  bool lro = false;
};

// Those that are up, without loopback, of the network namespace that the caller is in.
std::vector<InterfaceState> up_interfaces();

// At least one finding.
Findings check_interfaces(std::span<const InterfaceState> interfaces);

}  // namespace spillway::doctor
