// SPDX-License-Identifier: Apache-2.0
//
// The kernel and what is installed around it.
//
// Release: Spillway runs on any; what older ones lack costs speed. UDP_SEGMENT (GSO) came
// with 4.18, UDP_GRO with 5.0, what the eBPF switch needs with 5.15. Clock: pacing, timers and
// round trips rely on it. What a processor counts is read without a call into the kernel; timer
// chips take microseconds per look. eBPF: programs want a bpffs to be kept in, and the kernel's
// types (BTF). Tools: labs make their links with iproute2.
//
// All but measure_clock() judge files that they are handed, so that tests can make hosts up. Any
// thread.
#pragma once

#include <string_view>

#include "base/units.h"
#include "doctor/finding.h"
#include "doctor/host/host_files.h"

namespace spillway::doctor {

Finding check_kernel(const HostFiles& files);

Finding check_clock_source(const HostFiles& files);

struct ClockQuality {
  base::Duration resolution;  // of CLOCK_MONOTONIC
  base::Duration read_cost;   // the mean of many looks: only told, never judged
};

ClockQuality measure_clock();
Finding check_clock(const ClockQuality& quality);

Finding check_bpffs(const HostFiles& files);
Finding check_btf(const HostFiles& files);

// `path`: folders separated by colons, as in the variable PATH.
Finding check_iproute2(std::string_view path);

}  // namespace spillway::doctor
