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
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "gpu/device.h"
#include "gpu/device_coder.h"
#include "packetize/packet_plan.h"

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

// Device calls on one workspace, in order, as long as they succeed; a tensor's operations consist
// of these. The first failure becomes the sequence's status, and later calls do nothing, except
// wait(): after it the device uses no memory of the sequence any more.
//
// One thread.

static_assert(sizeof(codec::RowHeader) == sizeof(RowCode));

inline DevicePointer pointer_of(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory);
}

// Time spent by sequences, in nanoseconds by the device's clock. Any thread.
struct SequenceTimes {
  std::atomic<std::int64_t> encode{0};
  std::atomic<std::int64_t> to_host{0};
  std::atomic<std::int64_t> to_device{0};
  std::atomic<std::int64_t> decode{0};
};

class Sequence {
 public:
  using Buffer = Workspace::Buffer;
  // Which of SequenceTimes its kernels count for.
  enum class Work { kEncode, kDecode };

  Sequence(CudaCoder& coder, Workspace& workspace, Work work, SequenceTimes& times)
      : coder_(coder), workspace_(workspace), work_(work), times_(times) {}

  Stream stream() { return workspace_.stream().get(); }
  const base::Status& status() const { return status_; }
  void add(base::Status status) {
    if (status_.ok()) {
      status_ = std::move(status);
    }
  }
  // Sleeps until the device is done, even after a failure: work already started uses memory that
  // others reuse afterwards.
  void wait();

  DevicePointer buffer(Buffer which, std::size_t bytes);
  std::uint8_t* staging(std::size_t bytes);
  void copy_in(DevicePointer to, const void* from, std::size_t bytes);
  void copy_out(void* to, DevicePointer from, std::size_t bytes);
  void copy(float* to, DevicePointer from, std::size_t count);
  void clear(DevicePointer to, std::size_t bytes);
  void widen(const DeviceArray& from, const float* residual, DevicePointer to, std::size_t count);
  void clear_unless_finite(float* values, std::size_t count);

  // Planes. staged_bytes() is the staging memory for the data beside a message's payload;
  // room_for() reserves the message on the device.
  static std::size_t staged_bytes(const packetize::PacketPlan& plan) {
    return plan.layout().row_count() * sizeof(RowCode) + plan.packet_count() * 2;
  }
  DeviceMessage room_for(const packetize::PacketPlan& plan);
  // Copies a message's received planes to the device.
  DeviceMessage upload(const packetize::PacketPlan& plan, const packetize::KeptPlanes& came,
                       std::span<const std::uint16_t> received, std::uint8_t* staged);
  // Copies a complete message back to the host; waits.
  void download(const packetize::PacketPlan& plan, const DeviceMessage& message,
                std::uint8_t* staged, packetize::KeptPlanes& coded);
  void encode(const packetize::PacketPlan& plan, std::uint64_t key, const DeviceArray& values,
              const DeviceMessage& message, DevicePointer factors = 0);
  void decode(const packetize::PacketPlan& plan, std::uint64_t key, const DeviceMessage& message,
              Store store, const DeviceArray& values);

  // Levels. `values` are those of the piece.
  void measure(const collective::DeviceLevels& levels, const DeviceArray& values,
               DevicePointer measures);
  void round(const collective::DeviceLevels& levels, const DeviceArray& values, DevicePointer rows,
             DevicePointer numbers, DevicePointer clipped, DevicePointer words);
  void decode_sums(const collective::DeviceLevels& levels, DevicePointer words,
                   DevicePointer chunks, DevicePointer rows, Store store,
                   const DeviceArray& values);

 private:
  enum class Step : std::uint8_t { kToDevice, kCalculate, kToHost };
  // Marks the start of a step.
  void enter(Step step);
  void count_times();

  CudaCoder& coder_;
  Workspace& workspace_;
  Work work_;
  SequenceTimes& times_;
  std::vector<Step> steps_;  // one per mark
  base::Status status_;
};

}  // namespace spillway::gpu
