// SPDX-License-Identifier: Apache-2.0
//
// What this process may do beyond any user's rights, and what each right buys: CAP_NET_ADMIN
// (queues beyond the system's limits, eBPF on interfaces), CAP_NET_RAW (frames off an interface),
// CAP_BPF (eBPF programs). None is needed to send and receive, so a missing one is a note.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "doctor/finding.h"
#include "doctor/host/host_files.h"

namespace spillway::doctor {

// A bit per capability, as the line CapEff of /proc/self/status has them.
using CapabilitySet = std::uint64_t;

std::optional<CapabilitySet> parse_effective_capabilities(std::string_view status);
CapabilitySet effective_capabilities(const HostFiles& files);  // none where it cannot be read

bool has_net_admin(CapabilitySet set);
bool has_net_raw(CapabilitySet set);
bool has_bpf(CapabilitySet set);  // CAP_SYS_ADMIN includes it

Findings check_capabilities(CapabilitySet set);

// Whether a user without rights may make namespaces, which a lab without root needs.
Finding check_user_namespaces(const HostFiles& files);

}  // namespace spillway::doctor
