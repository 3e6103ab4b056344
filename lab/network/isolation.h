// SPDX-License-Identifier: Apache-2.0
//
// How a lab isolates its hosts from this machine and from each other:
//
//   kRoot  network, process and mount namespaces; needs the right to make them (root)
//   kUser  the same inside a user namespace, in which the caller is root; needs no rights
//   kNone  plain processes on loopback: only Spillway's packets cross the emulated fabric
//   kAuto  the first of these that this machine allows
//
// The functions may be called from any thread, but they fork. Other threads' locks stay locked in
// the child, so the child only makes system calls.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace spillway::lab {

enum class Isolation : std::uint8_t { kAuto, kRoot, kUser, kNone };

// What a user should know about kNone.
inline constexpr std::string_view kLoopbackNotice =
    "without namespaces only Spillway's packets cross the emulated fabric; all other traffic goes "
    "over loopback. To change that, run as root or allow user namespaces (sysctl "
    "user.max_user_namespaces)";

std::string_view isolation_name(Isolation isolation);
base::Result<Isolation> parse_isolation(std::string_view name);

// Flags for clone().
int clone_flags(Isolation isolation);

// Makes the caller root inside a new user namespace. Does nothing for other isolations.
base::Status become_root_inside(Isolation isolation, unsigned user, unsigned group);

// Never returns kAuto. Fails if the wanted kind is not allowed here.
base::Result<Isolation> resolve_isolation(Isolation wanted);

}  // namespace spillway::lab
