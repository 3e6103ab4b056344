// SPDX-License-Identifier: Apache-2.0
//
// Whether gradients in the memory of this host's GPUs are encoded there. That needs a driver and a
// run-time compiler that knows the GPU; without them, values are copied to the host and the CPU
// encodes them. Without a cache folder, every process compiles the kernels again.
//
// check_gpus() only judges its argument, so tests can make hosts up. look_at_gpus() starts the
// driver, which may take a second, and compiles kernels that the cache lacks. Any thread.
#pragma once

#include <string>
#include <vector>

#include "base/environment.h"
#include "base/status.h"
#include "gpu/device.h"
#include "tools/doctor/finding.h"

namespace spillway::doctor {

struct GpuSight {
  base::Status driver{};                   // why there is no driver
  std::vector<gpu::DeviceInfo> devices{};  // devices that the driver sees
  std::vector<base::Status> compilers{};   // by device: why its kernels cannot be compiled
  std::string cache_folder{};              // empty: no cache
};

GpuSight look_at_gpus(const base::Environment& environment);

Findings check_gpus(const GpuSight& sight);

}  // namespace spillway::doctor
