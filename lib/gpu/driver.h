// SPDX-License-Identifier: Apache-2.0
//
// NVIDIA's driver, loaded on first use. Nothing is linked, so one binary serves hosts with and
// without a GPU. The functions used here have kept their ABI since CUDA 11.
//
// Handles are the driver's own, so a PyTorch stream can be passed as it is. Calls use the context
// that is current on the calling thread, which CurrentContext sets.
//
// Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace spillway::gpu {

using DevicePointer = std::uint64_t;
using Context = void*;
using Module = void*;
using Function = void*;
using Stream = void*;  // nullptr: the context's default stream
using Event = void*;

// The driver's functions, named without "cu".
struct DriverCalls {
  int (*Init)(unsigned flags);
  int (*DriverGetVersion)(int* version);
  int (*GetErrorString)(int error, const char** text);
  int (*DeviceGetCount)(int* count);
  int (*DeviceGet)(int* device, int ordinal);
  int (*DeviceGetName)(char* name, int size, int device);
  int (*DeviceGetAttribute)(int* value, int attribute, int device);
  int (*DeviceTotalMem)(std::size_t* bytes, int device);
  int (*DevicePrimaryCtxRetain)(Context* context, int device);
  int (*CtxPushCurrent)(Context context);
  int (*CtxPopCurrent)(Context* context);
  int (*ModuleLoadData)(Module* module, const void* image);
  int (*ModuleGetFunction)(Function* function, Module module, const char* name);
  int (*FuncSetAttribute)(Function function, int attribute, int value);
  int (*LaunchKernel)(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                      unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                      Stream stream, void** arguments, void** extra);
  int (*MemAlloc)(DevicePointer* pointer, std::size_t bytes);
  int (*MemFree)(DevicePointer pointer);
  int (*MemHostAlloc)(void** pointer, std::size_t bytes, unsigned flags);
  int (*MemFreeHost)(void* pointer);
  int (*MemcpyHtoDAsync)(DevicePointer to, const void* from, std::size_t bytes, Stream stream);
  int (*MemcpyDtoHAsync)(void* to, DevicePointer from, std::size_t bytes, Stream stream);
  int (*MemcpyDtoDAsync)(DevicePointer to, DevicePointer from, std::size_t bytes, Stream stream);
  int (*MemsetD8Async)(DevicePointer to, unsigned char value, std::size_t bytes, Stream stream);
  int (*StreamCreate)(Stream* stream, unsigned flags);
  int (*StreamDestroy)(Stream stream);
  int (*StreamSynchronize)(Stream stream);
  int (*StreamWaitEvent)(Stream stream, Event event, unsigned flags);
  int (*StreamIsCapturing)(Stream stream, int* status);
  int (*ThreadExchangeStreamCaptureMode)(int* mode);
  int (*EventCreate)(Event* event, unsigned flags);
  int (*EventDestroy)(Event event);
  int (*EventRecord)(Event event, Stream stream);
  int (*EventSynchronize)(Event event);
  int (*EventElapsedTime)(float* milliseconds, Event begin, Event end);
};

class Driver {
 public:
  // Loads and starts the driver on the first call; later calls return the same result. The error
  // says in one sentence what is missing.
  static base::Result<const Driver*> find();

  const DriverCalls& calls() const { return calls_; }
  // The newest CUDA version that it supports: 13000 for CUDA 13.0.
  int version() const { return version_; }
  int device_count() const { return device_count_; }

  // The status for a driver call's return code. Out of memory is a limit; everything else is a
  // device failure.
  base::Status status(int code, std::string_view what) const;

 private:
  static base::Result<const Driver*> load();

  DriverCalls calls_{};
  int version_ = 0;
  int device_count_ = 0;
};

// Makes a context current on this thread and restores the previous one at the end. Meanwhile the
// thread may wait, allocate and free even if another thread captures a graph. Calls here never
// become part of that graph.
class CurrentContext {
 public:
  CurrentContext(const Driver& driver, Context context) : driver_(driver) {
    is_current_ = driver.calls().CtxPushCurrent(context) == 0;
    driver.calls().ThreadExchangeStreamCaptureMode(&mode_);
  }
  ~CurrentContext() {
    driver_.calls().ThreadExchangeStreamCaptureMode(&mode_);
    Context popped = nullptr;
    if (is_current_) {
      driver_.calls().CtxPopCurrent(&popped);
    }
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  static constexpr int kRelaxed = 2;  // the driver's constant
  const Driver& driver_;
  bool is_current_ = false;
  int mode_ = kRelaxed;  // the thread's own mode while this object lives
};

}  // namespace spillway::gpu
