// SPDX-License-Identifier: Apache-2.0
//
// The capabilities that this process has, and what each is good for: CAP_NET_ADMIN (queues beyond
// the system's limits, eBPF on interfaces), CAP_NET_RAW (raw frames from an interface), CAP_BPF
// (eBPF programs). None is needed to send and receive, so a missing one is a note.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tools/doctor/finding.h"
#include "tools/doctor/host/host_files.h"

namespace spillway::doctor {

// One bit per capability, as in the line CapEff of /proc/self/status.
using CapabilitySet = std::uint64_t;

std::optional<CapabilitySet> parse_effective_capabilities(std::string_view status);
CapabilitySet effective_capabilities(const HostFiles& files);  // empty set if it cannot be read

bool has_net_admin(CapabilitySet set);
bool has_net_raw(CapabilitySet set);
bool has_bpf(CapabilitySet set);  // CAP_SYS_ADMIN includes it

Findings check_capabilities(CapabilitySet set);

// Whether an unprivileged user may create namespaces, which a lab without root needs.
Finding check_user_namespaces(const HostFiles& files);

}  // namespace spillway::doctor
