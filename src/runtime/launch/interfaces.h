// SPDX-License-Identifier: Apache-2.0
//
// Which of this host's addresses the other ranks are told. Never loopback, unless all are on one
// machine, there is nothing else, or it was asked for: 127.0.0.1 reaches nobody from outside.
//
//   SPILLWAY_SOCKET_IFNAME   as NCCL_SOCKET_IFNAME: "eth,ib" interfaces whose names begin so;
//                            "=eth0" exactly this; "^docker,br" none that begins so; "^=docker0"
//   SPILLWAY_SOCKET_FAMILY   AF_INET or AF_INET6; else IPv4 where an interface has both
//
// Choosing is a pure function of a list; net/interfaces.h asks the kernel. Link-local IPv6
// addresses are left out: they mean nothing without the interface of whoever uses them.
#pragma once

#include <span>
#include <string>

#include "base/environment.h"
#include "base/status.h"
#include "net/interfaces.h"

namespace spillway::runtime {

enum class AddressFamily { kAny, kIpv4, kIpv6 };

struct InterfaceChoice {
  std::string names{};  // in the form of SPILLWAY_SOCKET_IFNAME; empty: the default
  AddressFamily family = AddressFamily::kAny;
  bool one_machine = false;  // all ranks are here; `names` has the last word all the same
};

base::Result<InterfaceChoice> interface_choice(const base::Environment& environment,
                                               bool one_machine);

// The first that fits, in the order of `interfaces`.
base::Result<net::InterfaceAddress> choose_interface(
    std::span<const net::InterfaceAddress> interfaces, const InterfaceChoice& choice);

}  // namespace spillway::runtime
