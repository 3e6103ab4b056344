// SPDX-License-Identifier: Apache-2.0
//
// Device calls on one workspace, in order, as long as they succeed; a tensor's operations consist
// of these. The first failure becomes the sequence's status, and later calls do nothing, except
// wait(): after it the device uses no memory of the sequence any more.
//
// One thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "gpu/cuda_coder.h"

namespace spillway::gpu {

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
  void widen(const DeviceArray& from, const float* owed, DevicePointer to, std::size_t count);
  void forget_unless_finite(float* values, std::size_t count);

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
