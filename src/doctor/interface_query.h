// SPDX-License-Identifier: Apache-2.0
//
// What the kernel says about the interfaces of the network namespace that the caller is in: asked
// by ioctl, because /sys may show another namespace's. No privilege needed; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "net/address.h"

namespace spillway::doctor {

std::vector<std::string> interface_names();
// The one that has this address; empty: none.
std::string interface_with(const net::SocketAddress& address);
// Empty where there is none of this index.
std::string interface_name(int index);

std::optional<unsigned> interface_mtu(const std::string& name);
bool is_up_and_outward(const std::string& name);  // not loopback
bool has_lro(const std::string& name);

}  // namespace spillway::doctor
