// SPDX-License-Identifier: Apache-2.0
//
// The clock that pacing, timers and round trips rely on. What a processor counts is read without a
// call into the kernel; timer chips take microseconds per look.
#pragma once

#include "base/units.h"
#include "doctor/finding.h"
#include "doctor/host_files.h"

namespace spillway::doctor {

Finding check_clock_source(const HostFiles& files);

struct ClockQuality {
  base::Duration resolution;  // of CLOCK_MONOTONIC
  base::Duration read_cost;   // the mean of many looks: only told, never judged
};

ClockQuality measure_clock();
Finding check_clock(const ClockQuality& quality);

}  // namespace spillway::doctor
