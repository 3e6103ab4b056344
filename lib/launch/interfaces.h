// SPDX-License-Identifier: Apache-2.0
//
// Chooses the address of this host that the other ranks are told. Loopback (127.0.0.1) cannot be
// reached from other hosts. It is chosen only if all ranks run on one machine, there is nothing
// else, or the user names it.
//
//   SPILLWAY_SOCKET_IFNAME   as NCCL_SOCKET_IFNAME: "eth,ib": names that begin so;
//                            "=eth0": exactly this; "^docker,br": none that begins so; "^=docker0"
//   SPILLWAY_SOCKET_FAMILY   AF_INET or AF_INET6; unset: IPv4 if an interface has both
//
// Choosing is a pure function of a list; net/interfaces.h asks the kernel. Link-local IPv6
// addresses are skipped: they are useless without the interface name of the host that uses them.
#pragma once

#include <span>
#include <string>

#include "base/environment.h"
#include "base/status.h"
#include "net/interfaces.h"

namespace spillway::runtime {

enum class AddressFamily { kAny, kIpv4, kIpv6 };

struct InterfaceChoice {
  std::string names{};  // as in SPILLWAY_SOCKET_IFNAME; empty: the default
  AddressFamily family = AddressFamily::kAny;
  bool one_machine = false;  // all ranks run here; `names` still wins
};

base::Result<InterfaceChoice> interface_choice(const base::Environment& environment,
                                               bool one_machine);

// The first match, in the order of `interfaces`.
base::Result<net::InterfaceAddress> choose_interface(
    std::span<const net::InterfaceAddress> interfaces, const InterfaceChoice& choice);

}  // namespace spillway::runtime
