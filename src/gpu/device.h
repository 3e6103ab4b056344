// SPDX-License-Identifier: Apache-2.0
//
// One GPU with the kernels loaded, and memory, streams and events of it as owners.
//
// A device is opened once per process and stays: its context is the primary one, which PyTorch and
// the CUDA run-time use too, so their pointers and streams are good here. Opening takes a second
// where kernels come from the cache, several where they are compiled; what did not work the first
// time is not tried again.
//
// Any thread, but one at a time per owned object. Calls start work and return; only those whose
// name says wait do.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/environment.h"
#include "base/status.h"
#include "gpu/driver.h"
#include "gpu/kernel_compiler.h"

namespace spillway::gpu {

inline constexpr int kMaxDevices = 64;

enum class Kernel : unsigned {
  kEncodeFloat32,
  kEncodeBfloat16,
  kEncodeFloat16,
  kDecodeFloat32,
  kDecodeBfloat16,
  kDecodeFloat16,
  kRotate,
  kWidenFloat32,
  kWidenBfloat16,
  kWidenFloat16,
  kFindNotFinite,
  kForgetIfFound,
  kMeasureFloat32,
  kMeasureBfloat16,
  kMeasureFloat16,
  kRoundFloat32,
  kRoundBfloat16,
  kRoundFloat16,
  kPackLevels,
  kDecodeSumsFloat32,
  kDecodeSumsBfloat16,
  kDecodeSumsFloat16,
};
inline constexpr std::size_t kKernels = 22;

struct DeviceInfo {
  int ordinal = 0;
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
  int multiprocessors = 0;
  std::size_t memory_bytes = 0;
  unsigned shared_bytes = 0;  // that a block may have
  std::string compiler;
  CodeOrigin code_origin = CodeOrigin::kCompiler;
  double code_seconds = 0.0;
};

// What the driver says of a GPU; nothing is loaded.
base::Result<DeviceInfo> describe_device(int ordinal);

struct LaunchSize {
  unsigned blocks;
  unsigned threads;
  unsigned shared_bytes;
};

class Device {
 public:
  static base::Result<std::shared_ptr<const Device>> open(int ordinal);
  // The same without a memory of earlier calls, for tests.
  static base::Result<std::shared_ptr<const Device>> open_anew(
      int ordinal, const base::Environment& environment);

  const DeviceInfo& info() const { return info_; }
  const Driver& driver() const { return *driver_; }
  Context context() const { return context_; }

  base::Status launch(Kernel kernel, const LaunchSize& size, const void* arguments,
                      Stream stream) const;
  // From the device to itself.
  base::Status copy(DevicePointer to, DevicePointer from, std::size_t bytes, Stream stream) const;
  // Fails, with what to do instead, where the stream captures a graph.
  base::Status check_not_capturing(Stream stream) const;
  // Zeros.
  base::Status clear(DevicePointer to, std::size_t bytes, Stream stream) const;

 private:
  Device(const Driver& driver, DeviceInfo info) : driver_(&driver), info_(std::move(info)) {}
  base::Status load(const KernelCode& code);

  const Driver* driver_;
  DeviceInfo info_;
  Context context_ = nullptr;
  std::array<Function, kKernels> functions_{};
};

using DeviceHandle = std::shared_ptr<const Device>;

// Memory of the device.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  static base::Result<DeviceMemory> make(DeviceHandle device, std::size_t bytes);
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory();

  DevicePointer get() const { return pointer_; }
  std::size_t size() const { return bytes_; }

 private:
  DeviceHandle device_;
  DevicePointer pointer_ = 0;
  std::size_t bytes_ = 0;
};

// Memory of the host that the device copies from and to by itself.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  static base::Result<PinnedMemory> make(DeviceHandle device, std::size_t bytes);
  PinnedMemory(PinnedMemory&& other) noexcept { *this = std::move(other); }
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;
  ~PinnedMemory();

  std::uint8_t* get() const { return static_cast<std::uint8_t*>(pointer_); }
  std::size_t size() const { return bytes_; }

 private:
  DeviceHandle device_;
  void* pointer_ = nullptr;
  std::size_t bytes_ = 0;
};

// A stream of its own, beside the default one, and copies on it.
class OwnedStream {
 public:
  static base::Result<OwnedStream> make(DeviceHandle device);
  OwnedStream(OwnedStream&& other) noexcept { *this = std::move(other); }
  OwnedStream& operator=(OwnedStream&& other) noexcept;
  ~OwnedStream();

  Stream get() const { return stream_; }
  base::Status copy_to_device(DevicePointer to, const void* from, std::size_t bytes);
  base::Status copy_to_host(void* to, DevicePointer from, std::size_t bytes);
  base::Status wait();

 private:
  OwnedStream(DeviceHandle device, Stream stream) : device_(std::move(device)), stream_(stream) {}

  DeviceHandle device_;
  Stream stream_ = nullptr;
};

// A point on a stream.
class OwnedEvent {
 public:
  // How a thread waits for it, and whether it tells times, which costs a little.
  enum class Waiting { kSpinning, kSleeping, kSleepingUntimed };
  static base::Result<OwnedEvent> make(DeviceHandle device, Waiting waiting = Waiting::kSpinning);
  OwnedEvent(OwnedEvent&& other) noexcept { *this = std::move(other); }
  OwnedEvent& operator=(OwnedEvent&& other) noexcept;
  ~OwnedEvent();

  // Behind what the stream has been given so far.
  base::Status record(Stream stream);
  // What the stream is given from now on waits for it, on the device.
  base::Status let_wait(Stream stream) const;
  base::Status wait() const;
  // Between two that have been waited for.
  static base::Result<double> seconds_between(const OwnedEvent& begin, const OwnedEvent& end);

 private:
  OwnedEvent(DeviceHandle device, Event event) : device_(std::move(device)), event_(event) {}

  DeviceHandle device_;
  Event event_ = nullptr;
};

}  // namespace spillway::gpu
