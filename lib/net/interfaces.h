// SPDX-License-Identifier: Apache-2.0
//
// The interfaces of the caller's network namespace. Asked by system calls, because /sys may show
// another namespace's. No privilege needed; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "net/address.h"

namespace spillway::net {

struct InterfaceAddress {
  std::string name{};  // the interface's name; one interface may have several addresses
  bool up = true;
  bool loopback = false;
  SocketAddress address{};  // port 0
};

// All IPv4 and IPv6 addresses, in the kernel's order.
base::Result<std::vector<InterfaceAddress>> interface_addresses();

// Includes interfaces without an address.
std::vector<std::string> interface_names();
// The interface that has this address; empty if none has.
std::string interface_with(const SocketAddress& address);
// Empty if no interface has this index.
std::string interface_name(int index);

std::optional<unsigned> interface_mtu(const std::string& name);
bool is_up_and_outward(const std::string& name);  // up, and not loopback
bool has_lro(const std::string& name);

}  // namespace spillway::net
