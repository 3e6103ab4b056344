// SPDX-License-Identifier: Apache-2.0
//
// Whether the kernel is new enough. Spillway runs on any; what older ones lack costs speed:
// UDP_SEGMENT (GSO) came with 4.18, UDP_GRO with 5.0, what the eBPF switch needs with 5.15.
#pragma once

#include "doctor/finding.h"
#include "doctor/host_files.h"

namespace spillway::doctor {

Finding check_kernel(const HostFiles& files);

}  // namespace spillway::doctor
