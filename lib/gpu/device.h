// SPDX-License-Identifier: Apache-2.0
//
// One GPU with the kernels loaded, and owners of its memory, streams and events.
//
// A device is opened once per process and stays open. It uses the primary context, which PyTorch
// and the CUDA runtime use too, so their pointers and streams are valid here. Opening takes a
// second if kernels come from the cache, several seconds if they are compiled. A failed first
// attempt is not repeated.
//
// Any thread, but each owned object only from one at a time. Calls start work and return; only
// those with "wait" in their name wait.
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
  kClearIfFound,
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
  unsigned shared_bytes = 0;  // limit per block
  std::string compiler;
  CodeOrigin code_origin = CodeOrigin::kCompiler;
  double code_seconds = 0.0;
};

// The driver's description of a GPU; loads nothing.
base::Result<DeviceInfo> describe_device(int ordinal);

struct LaunchSize {
  unsigned blocks;
  unsigned threads;
  unsigned shared_bytes;
};

class Device {
 public:
  static base::Result<std::shared_ptr<const Device>> open(int ordinal);
  // Like open(), but ignores earlier calls; for tests.
  static base::Result<std::shared_ptr<const Device>> open_anew(
      int ordinal, const base::Environment& environment);

  const DeviceInfo& info() const { return info_; }
  const Driver& driver() const { return *driver_; }
  Context context() const { return context_; }

  base::Status launch(Kernel kernel, const LaunchSize& size, const void* arguments,
                      Stream stream) const;
  // Copies within the device.
  base::Status copy(DevicePointer to, DevicePointer from, std::size_t bytes, Stream stream) const;
  // Fails if the stream is capturing a graph; the error says what to do instead.
  base::Status check_not_capturing(Stream stream) const;
  // Fills with zeros.
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

// Device memory.
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

// Pinned host memory, which the device can copy by itself.
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

// A stream of its own beside the default one, and copies on it.
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

// A position in a stream's work.
class OwnedEvent {
 public:
  // How a thread waits for the event, and whether it measures time, at a small cost.
  enum class Waiting { kSpinning, kSleeping, kSleepingUntimed };
  static base::Result<OwnedEvent> make(DeviceHandle device, Waiting waiting = Waiting::kSpinning);
  OwnedEvent(OwnedEvent&& other) noexcept { *this = std::move(other); }
  OwnedEvent& operator=(OwnedEvent&& other) noexcept;
  ~OwnedEvent();

  // Records the event behind the stream's present work.
  base::Status record(Stream stream);
  // Makes the stream's later work wait for the event, on the device.
  base::Status let_wait(Stream stream) const;
  base::Status wait() const;
  // Time between two events that have been waited for.
  static base::Result<double> seconds_between(const OwnedEvent& begin, const OwnedEvent& end);

 private:
  OwnedEvent(DeviceHandle device, Event event) : device_(std::move(device)), event_(event) {}

  DeviceHandle device_;
  Event event_ = nullptr;
};

}  // namespace spillway::gpu
