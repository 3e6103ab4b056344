// SPDX-License-Identifier: Apache-2.0
//
// What eBPF programs find on this host: a bpffs to keep them in, and the kernel's types (BTF).
#pragma once

#include "doctor/finding.h"
#include "doctor/host_files.h"

namespace spillway::doctor {

Finding check_bpffs(const HostFiles& files);
Finding check_btf(const HostFiles& files);

}  // namespace spillway::doctor
