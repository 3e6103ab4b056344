// SPDX-License-Identifier: Apache-2.0
//
// What the kernel says about the interfaces of the network namespace that the caller is in: asked
// by system calls, because /sys may show another namespace's. No privilege needed; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "net/address.h"

namespace spillway::net {

struct InterfaceAddress {
  std::string name{};  // of the interface, which may have several addresses
  bool up = true;
  bool loopback = false;
  SocketAddress address{};  // port 0
};

// All IPv4 and IPv6 addresses, in the kernel's order.
base::Result<std::vector<InterfaceAddress>> interface_addresses();

// Those without an address, too.
std::vector<std::string> interface_names();
// The one that has this address; empty: none.
std::string interface_with(const SocketAddress& address);
// Empty where there is none of this index.
std::string interface_name(int index);

std::optional<unsigned> interface_mtu(const std::string& name);
bool is_up_and_outward(const std::string& name);  // not loopback
bool has_lro(const std::string& name);

}  // namespace spillway::net
