// SPDX-License-Identifier: Apache-2.0
//
// Which of this host's addresses the other ranks are told. Never loopback, unless all are on one
// machine, there is nothing else, or it was asked for: 127.0.0.1 reaches nobody from outside.
//
//   SPILLWAY_SOCKET_IFNAME   as NCCL_SOCKET_IFNAME: "eth,ib" interfaces whose names begin so;
//                            "=eth0" exactly this; "^docker,br" none that begins so; "^=docker0"
//   SPILLWAY_SOCKET_FAMILY   AF_INET or AF_INET6; else IPv4 where an interface has both
//
// Choosing is a pure function of a list; interfaces_of_host() asks the kernel. Link-local IPv6
// addresses are left out: they mean nothing without the interface of whoever uses them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "net/address.h"
#include "runtime/launch_environment.h"

namespace spillway::runtime {

struct InterfaceAddress {
  std::string name{};
  bool up = true;
  bool loopback = false;
  net::SocketAddress address{};  // port 0
};

enum class AddressFamily { kAny, kIpv4, kIpv6 };

struct InterfaceChoice {
  std::string names{};  // in the form of SPILLWAY_SOCKET_IFNAME; empty: the default
  AddressFamily family = AddressFamily::kAny;
  bool one_machine = false;  // all ranks are here; `names` has the last word all the same
};

base::Result<InterfaceChoice> interface_choice(const Environment& environment, bool one_machine);

// The first that fits, in the order of `interfaces`.
base::Result<InterfaceAddress> choose_interface(std::span<const InterfaceAddress> interfaces,
                                                const InterfaceChoice& choice);

// Of the network namespace that the caller is in.
base::Result<std::vector<InterfaceAddress>> interfaces_of_host();

}  // namespace spillway::runtime
