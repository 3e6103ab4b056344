// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/host/gpus.h"

#include <fmt/format.h>

#include "gpu/driver.h"
#include "gpu/kernel_compiler.h"
#include "gpu/launch_plan.h"

namespace spillway::doctor {
namespace {

constexpr const char* kGpuCheck = "gpu";

std::string text_of(const gpu::DeviceInfo& device) {
  return fmt::format("{}: {}, compute capability {}.{}, {} GiB", device.ordinal, device.name,
                     device.major, device.minor, device.memory_bytes >> 30);
}

Finding finding_of(const gpu::DeviceInfo& device, const base::Status& compiler) {
  if (!compiler.ok()) {
    return {
        kGpuCheck, Severity::kWarning,
        fmt::format("{}: gradients are coded by the CPU: {}", text_of(device), compiler.message()),
        "install NVRTC for this GPU (pip install nvidia-cuda-nvrtc), or set SPILLWAY_NVRTC"};
  }
  const unsigned needed =
      gpu::launches_of(codec::RowLayout(codec::kMaxRowLength, codec::kMaxRowLog2), 0, 1)
          .front()
          .shared_bytes;
  if (device.shared_bytes < needed) {
    return {kGpuCheck, Severity::kNote,
            fmt::format("{}: codes gradients in rows of up to 2^13 or 2^14", text_of(device)),
            "leave rows at their default length"};
  }
  return {kGpuCheck, Severity::kOk, fmt::format("{}: codes gradients", text_of(device))};
}

}  // namespace

GpuSight look_at_gpus(const base::Environment& environment) {
  GpuSight sight;
  sight.cache_folder = gpu::cache_folder(environment);
  const base::Result<const gpu::Driver*> driver = gpu::Driver::find();
  sight.driver = driver.status();
  if (!driver.ok()) {
    return sight;
  }
  for (int i = 0; i < std::min((*driver)->device_count(), gpu::kMaxDevices); ++i) {
    const base::Result<gpu::DeviceInfo> device = gpu::describe_device(i);
    if (!device.ok()) {
      sight.driver = device.status();
      return sight;
    }
    sight.devices.push_back(*device);
    sight.compilers.push_back(
        gpu::compile_kernels(device->major, device->minor, environment).status());
  }
  return sight;
}

Findings check_gpus(const GpuSight& sight) {
  if (sight.devices.empty()) {
    return {{kGpuCheck, Severity::kOk,
             sight.driver.ok() ? "none: gradients are coded by the CPU" : sight.driver.message()}};
  }
  Findings findings;
  for (std::size_t i = 0; i < sight.devices.size(); ++i) {
    findings.push_back(finding_of(sight.devices[i], sight.compilers[i]));
  }
  if (sight.cache_folder.empty()) {
    findings.push_back({kGpuCheck, Severity::kNote,
                        "kernels are compiled in every process: there is no folder to keep them",
                        "set HOME, XDG_CACHE_HOME or SPILLWAY_CACHE_DIR"});
  }
  return findings;
}

}  // namespace spillway::doctor
