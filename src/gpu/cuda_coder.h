// SPDX-License-Identifier: Apache-2.0
//
// A GPU's coder, one per process: kernels, and memory that is used again and again. Pinned memory
// for messages comes in powers of two, of which up to kMaxIdlePinnedBytes are kept; a workspace on
// the device goes to one thread at a time, and there are as many as ever coded at once.
//
// Any thread; a workspace is its taker's until it is let go.
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
  // At least so long. What was in it is lost when it grows, and the stream must be idle then.
  base::Result<DevicePointer> buffer(Buffer which, std::size_t bytes);
  // The same in pinned memory, for what is small and travels beside planes.
  base::Result<std::uint8_t*> staging(std::size_t bytes);

  OwnedStream& stream() { return stream_; }
  // Sleeps until the stream has done what it was given.
  base::Status wait();

  // A mark on the stream, behind what it was given; those of one sequence are numbered from 0.
  base::Status mark(std::size_t number);
  // From a mark to the one behind it or, of the last of `count`, to the end; once that was waited
  // for. Nothing where the device cannot say.
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
  // Made at the first call, which loads the GPU's kernels, and the same ever after; or the sentence
  // why not.
  static base::Result<std::shared_ptr<CudaCoder>> of(int ordinal);

  const PlaneCoder& planes() const { return planes_; }
  const LevelCoder& levels() const { return levels_; }
  const DeviceHandle& device() const { return planes_.device(); }

  // Both go back when they are let go.
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
