// SPDX-License-Identifier: Apache-2.0
#include "gpu/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <memory>

namespace spillway::gpu {
namespace {

constexpr const char* kDriverLibrary = "libcuda.so.1";
constexpr int kOutOfMemory = 2;
constexpr int kNoDevice = 100;

class SymbolLoader {
 public:
  explicit SymbolLoader(void* library) : library_(library) {}

  template <typename FunctionPointer>
  void load(const char* name, FunctionPointer& function) {
    function = reinterpret_cast<FunctionPointer>(::dlsym(library_, name));
    if (function == nullptr && missing_.empty()) {
      missing_ = name;
    }
  }
  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

void load_device_calls(SymbolLoader& loader, DriverCalls& calls) {
  loader.load("cuInit", calls.Init);
  loader.load("cuDriverGetVersion", calls.DriverGetVersion);
  loader.load("cuGetErrorString", calls.GetErrorString);
  loader.load("cuDeviceGetCount", calls.DeviceGetCount);
  loader.load("cuDeviceGet", calls.DeviceGet);
  loader.load("cuDeviceGetName", calls.DeviceGetName);
  loader.load("cuDeviceGetAttribute", calls.DeviceGetAttribute);
  loader.load("cuDeviceTotalMem_v2", calls.DeviceTotalMem);
  loader.load("cuDevicePrimaryCtxRetain", calls.DevicePrimaryCtxRetain);
  loader.load("cuCtxPushCurrent_v2", calls.CtxPushCurrent);
  loader.load("cuCtxPopCurrent_v2", calls.CtxPopCurrent);
  loader.load("cuModuleLoadData", calls.ModuleLoadData);
  loader.load("cuModuleGetFunction", calls.ModuleGetFunction);
  loader.load("cuFuncSetAttribute", calls.FuncSetAttribute);
  loader.load("cuLaunchKernel", calls.LaunchKernel);
}

void load_memory_calls(SymbolLoader& loader, DriverCalls& calls) {
  loader.load("cuMemAlloc_v2", calls.MemAlloc);
  loader.load("cuMemFree_v2", calls.MemFree);
  loader.load("cuMemHostAlloc", calls.MemHostAlloc);
  loader.load("cuMemFreeHost", calls.MemFreeHost);
  loader.load("cuMemcpyHtoDAsync_v2", calls.MemcpyHtoDAsync);
  loader.load("cuMemcpyDtoHAsync_v2", calls.MemcpyDtoHAsync);
  loader.load("cuMemcpyDtoDAsync_v2", calls.MemcpyDtoDAsync);
  loader.load("cuMemsetD8Async", calls.MemsetD8Async);
  loader.load("cuStreamCreate", calls.StreamCreate);
  loader.load("cuStreamDestroy_v2", calls.StreamDestroy);
  loader.load("cuStreamSynchronize", calls.StreamSynchronize);
  loader.load("cuStreamWaitEvent", calls.StreamWaitEvent);
  loader.load("cuStreamIsCapturing", calls.StreamIsCapturing);
  loader.load("cuThreadExchangeStreamCaptureMode", calls.ThreadExchangeStreamCaptureMode);
  loader.load("cuEventCreate", calls.EventCreate);
  loader.load("cuEventDestroy_v2", calls.EventDestroy);
  loader.load("cuEventRecord", calls.EventRecord);
  loader.load("cuEventSynchronize", calls.EventSynchronize);
  loader.load("cuEventElapsedTime", calls.EventElapsedTime);
}

base::Status unavailable(std::string message) {
  return {base::StatusCode::kUnavailable, std::move(message)};
}

}  // namespace

base::Result<const Driver*> Driver::load() {
  void* const library = ::dlopen(kDriverLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return unavailable(
        fmt::format("{} was not found: there is no NVIDIA driver here, so the CPU "
                    "codes",
                    kDriverLibrary));
  }
  static Driver driver;
  SymbolLoader loader(library);
  load_device_calls(loader, driver.calls_);
  load_memory_calls(loader, driver.calls_);
  if (!loader.missing().empty()) {
    return unavailable(fmt::format("{} has no {}: install a driver for CUDA 11 or newer",
                                   kDriverLibrary, loader.missing()));
  }
  const int started = driver.calls_.Init(0);
  if (started == kNoDevice) {
    return unavailable("the NVIDIA driver sees no GPU: check CUDA_VISIBLE_DEVICES");
  }
  base::Status status = driver.status(started, "starting the NVIDIA driver");
  if (status.ok()) {
    status = driver.status(driver.calls_.DriverGetVersion(&driver.version_), "asking its version");
  }
  if (status.ok()) {
    status = driver.status(driver.calls_.DeviceGetCount(&driver.device_count_), "counting GPUs");
  }
  if (!status.ok()) {
    return status;
  }
  return &driver;
}

base::Result<const Driver*> Driver::find() {
  static const base::Result<const Driver*> found = load();
  return found;
}

base::Status Driver::status(int code, std::string_view what) const {
  if (code == 0) {
    return {};
  }
  const char* text = nullptr;
  calls_.GetErrorString(code, &text);
  const std::string_view why = text != nullptr ? text : "an error without a text";
  if (code == kOutOfMemory) {
    return {base::StatusCode::kLimitExceeded,
            fmt::format("{}: the GPU's memory is full: free some, or use smaller buckets", what)};
  }
  return {base::StatusCode::kInternal, fmt::format("{}: {} (CUDA error {})", what, why, code)};
}

}  // namespace spillway::gpu
