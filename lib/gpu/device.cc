// SPDX-License-Identifier: Apache-2.0
#include "gpu/device.h"

#include <fmt/format.h>

#include <mutex>
#include <optional>
#include <utility>

namespace spillway::gpu {
namespace {

// The driver's attribute numbers.
constexpr int kMultiprocessors = 16;
constexpr int kMajor = 75;
constexpr int kMinor = 76;
constexpr int kSharedBytesOfBlock = 97;
constexpr int kDynamicSharedBytes = 8;
constexpr unsigned kNonBlockingStream = 1;
constexpr unsigned kSleepingEvent = 1;
constexpr unsigned kUntimedEvent = 2;

constexpr std::array<const char*, kKernels> kKernelNames = {
    "spillway_encode_float32",
    "spillway_encode_bfloat16",
    "spillway_encode_float16",
    "spillway_decode_float32",
    "spillway_decode_bfloat16",
    "spillway_decode_float16",
    "spillway_rotate",
    "spillway_widen_float32",
    "spillway_widen_bfloat16",
    "spillway_widen_float16",
    "spillway_find_not_finite",
    "spillway_clear_if_found",
    "spillway_measure_float32",
    "spillway_measure_bfloat16",
    "spillway_measure_float16",
    "spillway_round_float32",
    "spillway_round_bfloat16",
    "spillway_round_float16",
    "spillway_pack_levels",
    "spillway_decode_sums_float32",
    "spillway_decode_sums_bfloat16",
    "spillway_decode_sums_float16",
};

base::Result<DeviceInfo> describe(const Driver& driver, int ordinal) {
  if (ordinal < 0 || ordinal >= driver.device_count() || ordinal >= kMaxDevices) {
    return base::invalid_argument(
        fmt::format("there is no GPU {}: the driver sees {}", ordinal, driver.device_count()));
  }
  const DriverCalls& calls = driver.calls();
  DeviceInfo info;
  info.ordinal = ordinal;
  int device = 0;
  int shared = 0;
  std::array<char, 256> name{};
  int code = calls.DeviceGet(&device, ordinal);
  const auto ask = [&](int attribute, int& value) {
    code = code == 0 ? calls.DeviceGetAttribute(&value, attribute, device) : code;
  };
  ask(kMajor, info.major);
  ask(kMinor, info.minor);
  ask(kMultiprocessors, info.multiprocessors);
  ask(kSharedBytesOfBlock, shared);
  code = code == 0 ? calls.DeviceGetName(name.data(), static_cast<int>(name.size()) - 1, device)
                   : code;
  code = code == 0 ? calls.DeviceTotalMem(&info.memory_bytes, device) : code;
  if (code != 0) {
    return driver.status(code, fmt::format("asking about GPU {}", ordinal));
  }
  info.name = name.data();
  info.shared_bytes = static_cast<unsigned>(shared);
  return info;
}

}  // namespace

base::Result<DeviceInfo> describe_device(int ordinal) {
  const base::Result<const Driver*> driver = Driver::find();
  return driver.ok() ? describe(**driver, ordinal) : driver.status();
}

base::Status Device::load(const KernelCode& code) {
  const DriverCalls& calls = driver_->calls();
  int device = 0;
  int error = calls.DeviceGet(&device, info_.ordinal);
  error = error == 0 ? calls.DevicePrimaryCtxRetain(&context_, device) : error;
  if (error != 0) {
    return driver_->status(error, fmt::format("making a context on GPU {}", info_.ordinal));
  }
  const CurrentContext current(*driver_, context_);
  Module module = nullptr;
  error = calls.ModuleLoadData(&module, code.image.data());
  for (std::size_t i = 0; i < kKernels && error == 0; ++i) {
    error = calls.ModuleGetFunction(&functions_[i], module, kKernelNames[i]);
    error = error == 0 ? calls.FuncSetAttribute(functions_[i], kDynamicSharedBytes,
                                                static_cast<int>(info_.shared_bytes))
                       : error;
  }
  return driver_->status(error, fmt::format("loading kernels into GPU {}", info_.ordinal));
}

base::Result<DeviceHandle> Device::open_anew(int ordinal, const base::Environment& environment) {
  const base::Result<const Driver*> driver = Driver::find();
  if (!driver.ok()) {
    return driver.status();
  }
  base::Result<DeviceInfo> info = describe(**driver, ordinal);
  if (!info.ok()) {
    return info.status();
  }
  const base::Result<KernelCode> code = compile_kernels(info->major, info->minor, environment);
  if (!code.ok()) {
    return code.status();
  }
  DeviceInfo complete = *info;
  complete.compiler = code->compiler;
  complete.code_origin = code->origin;
  complete.code_seconds = code->seconds;
  auto device = std::shared_ptr<Device>(new Device(**driver, complete));
  if (base::Status status = device->load(*code); !status.ok()) {
    return status;
  }
  return DeviceHandle(std::move(device));
}

base::Result<DeviceHandle> Device::open(int ordinal) {
  static std::mutex mutex;
  static std::array<std::optional<base::Result<DeviceHandle>>, kMaxDevices> opened;
  if (ordinal < 0 || ordinal >= kMaxDevices) {
    return base::invalid_argument(fmt::format("there is no GPU {}", ordinal));
  }
  const std::lock_guard lock(mutex);
  auto& entry = opened[static_cast<std::size_t>(ordinal)];
  if (!entry) {
    entry = open_anew(ordinal, base::Environment::of_process());
  }
  return *entry;
}

base::Status Device::launch(Kernel kernel, const LaunchSize& size, const void* arguments,
                            Stream stream) const {
  if (size.shared_bytes > info_.shared_bytes) {
    return {base::StatusCode::kUnavailable,
            fmt::format("rows of this length need {} bytes of shared memory, and {} has {}: use "
                        "shorter rows",
                        size.shared_bytes, info_.name, info_.shared_bytes)};
  }
  const CurrentContext current(*driver_, context_);
  void* parameters[] = {const_cast<void*>(arguments)};
  const int error = driver_->calls().LaunchKernel(functions_[static_cast<unsigned>(kernel)],
                                                  size.blocks, 1, 1, size.threads, 1, 1,
                                                  size.shared_bytes, stream, parameters, nullptr);
  return driver_->status(error, kKernelNames[static_cast<unsigned>(kernel)]);
}

base::Status Device::copy(DevicePointer to, DevicePointer from, std::size_t bytes,
                          Stream stream) const {
  const CurrentContext current(*driver_, context_);
  return driver_->status(driver_->calls().MemcpyDtoDAsync(to, from, bytes, stream),
                         "copying on the GPU");
}

base::Status Device::clear(DevicePointer to, std::size_t bytes, Stream stream) const {
  const CurrentContext current(*driver_, context_);
  return driver_->status(driver_->calls().MemsetD8Async(to, 0, bytes, stream),
                         "clearing the GPU's memory");
}

base::Status Device::check_not_capturing(Stream stream) const {
  const CurrentContext current(*driver_, context_);
  int capturing = 0;
  const int error = driver_->calls().StreamIsCapturing(stream, &capturing);
  if (error != 0) {
    return driver_->status(error, "asking a stream whether it captures a graph");
  }
  return capturing == 0
             ? base::Status()
             : base::invalid_argument(
                   "an operation cannot be captured in a CUDA graph, because it goes through the "
                   "host: capture what is before and behind it, and call it between the replays");
}

base::Result<DeviceMemory> DeviceMemory::make(DeviceHandle device, std::size_t bytes) {
  const CurrentContext current(device->driver(), device->context());
  DeviceMemory memory;
  const int error = device->driver().calls().MemAlloc(&memory.pointer_, bytes > 0 ? bytes : 1);
  if (error != 0) {
    return device->driver().status(
        error, fmt::format("taking {} bytes of GPU {}", bytes, device->info().ordinal));
  }
  memory.device_ = std::move(device);
  memory.bytes_ = bytes;
  return memory;
}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(pointer_, other.pointer_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

DeviceMemory::~DeviceMemory() {
  if (pointer_ != 0) {
    const CurrentContext current(device_->driver(), device_->context());
    device_->driver().calls().MemFree(pointer_);
  }
}

base::Result<PinnedMemory> PinnedMemory::make(DeviceHandle device, std::size_t bytes) {
  const CurrentContext current(device->driver(), device->context());
  PinnedMemory memory;
  const int error =
      device->driver().calls().MemHostAlloc(&memory.pointer_, bytes > 0 ? bytes : 1, 0);
  if (error != 0) {
    return base::Status(base::StatusCode::kLimitExceeded,
                        fmt::format("{} bytes of memory cannot be pinned for GPU {}: the machine's "
                                    "memory is full, or locked memory is limited (ulimit -l)",
                                    bytes, device->info().ordinal));
  }
  memory.device_ = std::move(device);
  memory.bytes_ = bytes;
  return memory;
}

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(pointer_, other.pointer_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

PinnedMemory::~PinnedMemory() {
  if (pointer_ != nullptr) {
    const CurrentContext current(device_->driver(), device_->context());
    device_->driver().calls().MemFreeHost(pointer_);
  }
}

base::Result<OwnedStream> OwnedStream::make(DeviceHandle device) {
  const CurrentContext current(device->driver(), device->context());
  Stream stream = nullptr;
  const int error = device->driver().calls().StreamCreate(&stream, kNonBlockingStream);
  if (error != 0) {
    return device->driver().status(error, "making a stream");
  }
  return OwnedStream(std::move(device), stream);
}

OwnedStream& OwnedStream::operator=(OwnedStream&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(stream_, other.stream_);
  return *this;
}

OwnedStream::~OwnedStream() {
  if (stream_ != nullptr) {
    const CurrentContext current(device_->driver(), device_->context());
    device_->driver().calls().StreamDestroy(stream_);
  }
}

base::Status OwnedStream::copy_to_device(DevicePointer to, const void* from, std::size_t bytes) {
  const CurrentContext current(device_->driver(), device_->context());
  return device_->driver().status(
      device_->driver().calls().MemcpyHtoDAsync(to, from, bytes, stream_), "copying to the GPU");
}

base::Status OwnedStream::copy_to_host(void* to, DevicePointer from, std::size_t bytes) {
  const CurrentContext current(device_->driver(), device_->context());
  return device_->driver().status(
      device_->driver().calls().MemcpyDtoHAsync(to, from, bytes, stream_), "copying from the GPU");
}

base::Status OwnedStream::wait() {
  const CurrentContext current(device_->driver(), device_->context());
  return device_->driver().status(device_->driver().calls().StreamSynchronize(stream_),
                                  "waiting for the GPU");
}

base::Result<OwnedEvent> OwnedEvent::make(DeviceHandle device, Waiting waiting) {
  const CurrentContext current(device->driver(), device->context());
  Event event = nullptr;
  const unsigned flags = waiting == Waiting::kSpinning   ? 0
                         : waiting == Waiting::kSleeping ? kSleepingEvent
                                                         : kSleepingEvent | kUntimedEvent;
  const int error = device->driver().calls().EventCreate(&event, flags);
  if (error != 0) {
    return device->driver().status(error, "making an event");
  }
  return OwnedEvent(std::move(device), event);
}

OwnedEvent& OwnedEvent::operator=(OwnedEvent&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(event_, other.event_);
  return *this;
}

OwnedEvent::~OwnedEvent() {
  if (event_ != nullptr) {
    const CurrentContext current(device_->driver(), device_->context());
    device_->driver().calls().EventDestroy(event_);
  }
}

base::Status OwnedEvent::record(Stream stream) {
  const CurrentContext current(device_->driver(), device_->context());
  return device_->driver().status(device_->driver().calls().EventRecord(event_, stream),
                                  "recording an event");
}

base::Status OwnedEvent::let_wait(Stream stream) const {
  const CurrentContext current(device_->driver(), device_->context());
  return device_->driver().status(device_->driver().calls().StreamWaitEvent(stream, event_, 0),
                                  "letting a stream wait");
}

base::Status OwnedEvent::wait() const {
  const CurrentContext current(device_->driver(), device_->context());
  return device_->driver().status(device_->driver().calls().EventSynchronize(event_),
                                  "waiting for the GPU");
}

base::Result<double> OwnedEvent::seconds_between(const OwnedEvent& begin, const OwnedEvent& end) {
  float milliseconds = 0.0F;
  const Driver& driver = begin.device_->driver();
  const CurrentContext current(driver, begin.device_->context());
  const int error = driver.calls().EventElapsedTime(&milliseconds, begin.event_, end.event_);
  if (error != 0) {
    return driver.status(error, "reading the GPU's clock");
  }
  return static_cast<double>(milliseconds) * 1e-3;
}

}  // namespace spillway::gpu
