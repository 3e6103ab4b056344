// SPDX-License-Identifier: Apache-2.0
//
// Whether gradients in the memory of this host's GPUs are coded there. That wants a driver, a
// run-time compiler that knows the GPU, and a folder in which what it compiled is kept; where one
// of these is missing, values travel to the host and the CPU codes them.
//
// check_gpus() judges what it is handed, so that tests can make hosts up. Looking compiles nothing
// that is not kept already; it starts the driver, which may take a second. Any thread.
#pragma once

#include <string>
#include <vector>

#include "base/environment.h"
#include "base/status.h"
#include "doctor/finding.h"
#include "gpu/device.h"

namespace spillway::doctor {

struct GpuSight {
  base::Status driver{};                   // why there is none
  std::vector<gpu::DeviceInfo> devices{};  // that the driver sees
  std::vector<base::Status> compilers{};   // by device: why its kernels cannot be compiled
  std::string cache_folder{};              // empty: there is none
};

GpuSight look_at_gpus(const base::Environment& environment);

Findings check_gpus(const GpuSight& sight);

}  // namespace spillway::doctor
