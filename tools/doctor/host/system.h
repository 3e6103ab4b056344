// SPDX-License-Identifier: Apache-2.0
//
// The kernel and the software around it.
//
// Release: Spillway runs on any kernel; features that older ones lack only cost speed. UDP_SEGMENT
// (GSO) came with 4.18, UDP_GRO with 5.0, and what the eBPF switch needs with 5.15. Clock: pacing,
// timers and round-trip times rely on it. A processor's counter is read without a system call;
// timer chips take microseconds per read. eBPF: programs need a bpffs to be pinned in, and the
// kernel's types (BTF). Tools: labs create their links with iproute2.
//
// All functions but measure_clock() judge the files they are given, so tests can make hosts up. Any
// thread.
#pragma once

#include <string_view>

#include "base/units.h"
#include "tools/doctor/finding.h"
#include "tools/doctor/host/host_files.h"

namespace spillway::doctor {

Finding check_kernel(const HostFiles& files);

Finding check_clock_source(const HostFiles& files);

struct ClockQuality {
  base::Duration resolution;  // of CLOCK_MONOTONIC
  base::Duration read_cost;   // mean of many reads; reported, not judged
};

ClockQuality measure_clock();
Finding check_clock(const ClockQuality& quality);

Finding check_bpffs(const HostFiles& files);
Finding check_btf(const HostFiles& files);

// `path`: folders separated by colons, as in the variable PATH.
Finding check_iproute2(std::string_view path);

}  // namespace spillway::doctor
