// SPDX-License-Identifier: Apache-2.0
//
// The codec of one GPU, one per process: the kernels, and reusable memory. Pinned memory for
// messages comes in powers of two; up to kMaxIdlePinnedBytes of it stay allocated while idle. Each
// device workspace serves one thread at a time. There are as many as threads that ever coded at
// once.
//
// Any thread; a workspace belongs to its taker until it is released.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "gpu/device.h"
#include "gpu/level_coder.h"
#include "gpu/plane_coder.h"
#include "packetize/kept_planes.h"

namespace spillway::gpu {

inline constexpr std::size_t kMaxIdlePinnedBytes = std::size_t{1} << 30;

class Workspace {
 public:
  static base::Result<std::unique_ptr<Workspace>> make(const DeviceHandle& device);

  enum class Buffer : unsigned {
    kSums,
    kPlanes,
    kRows,
    kReceived,
    kFactors,
    kFound,
    kNumbers,
  };
  static constexpr std::size_t kBuffers = 7;
  // A device buffer of at least `bytes`. Growing it loses its content and requires an idle stream.
  base::Result<DevicePointer> buffer(Buffer which, std::size_t bytes);
  // The same in pinned host memory, for the small data beside planes.
  base::Result<std::uint8_t*> staging(std::size_t bytes);

  OwnedStream& stream() { return stream_; }
  // Sleeps until the stream has finished all its work.
  base::Status wait();

  // Records a mark on the stream behind its present work. Each sequence numbers its marks from 0.
  base::Status mark(std::size_t number);
  // Time from one of `count` marks to the next, or to the end for the last mark. Call wait() first.
  // Zero if the device cannot measure it.
  base::Duration time_from(std::size_t number, std::size_t count) const;

 private:
  Workspace(DeviceHandle device, OwnedStream stream, OwnedEvent done)
      : device_(std::move(device)), stream_(std::move(stream)), done_(std::move(done)) {}

  DeviceHandle device_;
  OwnedStream stream_;
  OwnedEvent done_;
  std::vector<OwnedEvent> marks_;
  std::array<DeviceMemory, kBuffers> buffers_;
  PinnedMemory staging_;
};

class CudaCoder : public std::enable_shared_from_this<CudaCoder> {
 public:
  // Created by the first call, which loads the GPU's kernels. Later calls return the same result,
  // or the same error.
  static base::Result<std::shared_ptr<CudaCoder>> of(int ordinal);

  const PlaneCoder& planes() const { return planes_; }
  const LevelCoder& levels() const { return levels_; }
  const DeviceHandle& device() const { return planes_.device(); }

  // Both return to the coder when released.
  base::Result<packetize::PlaneMemory> take_pinned(std::size_t bytes);
  using Lease = std::unique_ptr<Workspace, std::function<void(Workspace*)>>;
  base::Result<Lease> take_workspace();

 private:
  explicit CudaCoder(PlaneCoder planes) : planes_(std::move(planes)), levels_(planes_.device()) {}
  static base::Result<std::shared_ptr<CudaCoder>> make(int ordinal);
  void give_back(PinnedMemory memory);

  PlaneCoder planes_;
  LevelCoder levels_;
  std::mutex mutex_;
  std::vector<PinnedMemory> idle_pinned_;
  std::size_t idle_pinned_bytes_ = 0;
  std::vector<std::unique_ptr<Workspace>> idle_workspaces_;
};

}  // namespace spillway::gpu
