// SPDX-License-Identifier: Apache-2.0
//
// collective::DeviceTensor for CUDA: a tensor in the memory of an NVIDIA GPU. The GPU codes it; for
// an exact operation it is copied to the host and back.
//
// Work runs on streams of our own, behind everything the caller's stream held when the tensor was
// made. Threads that wait for it sleep. When an operation has ended, so has all its work on the
// device, and its output is visible to every stream.
//
// The caller's memory must stay valid until the operation has ended.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "collective/device_tensor.h"
#include "collective/operation.h"
#include "gpu/cuda_coder.h"

namespace spillway::gpu {

class CudaTensor final : public collective::DeviceTensor {
 public:
  // For an operation whose input and output are on that GPU. `stream` is the stream of the caller's
  // work on them.
  static base::Result<std::shared_ptr<collective::DeviceTensor>> make(
      int ordinal, const collective::Operation& operation, Stream stream);

  collective::PartTimes times() const override;
  std::uint8_t* host_input() override { return host_input_.get(); }
  std::uint8_t* host_output() override { return host_output_.get(); }
  base::Status copy_to_host(std::size_t offset, std::size_t bytes) override;
  base::Status copy_to_device(std::size_t offset, std::size_t bytes) override;
  base::Result<packetize::KeptPlanes> make_planes(const packetize::PacketPlan& plan) override;
  base::Result<std::shared_ptr<float[]>> make_residual(std::size_t count) override;
  base::Status encode(const collective::Extent& extent, const packetize::PacketPlan& plan,
                      std::uint64_t key, float* residual, packetize::KeptPlanes& coded) override;
  base::Status settle(const collective::Extent& extent, const packetize::PacketPlan& plan,
                      std::uint64_t key, const packetize::KeptPlanes& sent,
                      std::span<const std::uint16_t> used, float* residual) override;
  base::Status add_up(const collective::Extent& extent, const collective::DeviceSum& sum,
                      packetize::KeptPlanes& coded) override;
  base::Status decode(const collective::Extent& extent, const packetize::PacketPlan& plan,
                      std::uint64_t key, const packetize::KeptPlanes& came) override;

  base::Result<std::shared_ptr<std::uint64_t[]>> make_words(std::size_t count) override;
  base::Status measure(const collective::DeviceLevels& levels, const float* residual,
                       std::span<codec::RotatedRow> rows) override;
  base::Status round(const collective::DeviceLevels& levels, const float* residual,
                     std::span<const codec::RotatedRow> rows, std::span<const float> scales,
                     std::span<std::uint64_t> words, std::size_t& clipped) override;
  base::Status decode_sums(const collective::DeviceLevels& levels,
                           const collective::DeviceLevelSums& sums) override;
  base::Status settle_levels(const collective::DeviceLevels& levels,
                             const collective::DeviceLevelSums& sums,
                             const std::vector<bool>& not_finite, float* residual) override;

 private:
  CudaTensor(std::shared_ptr<CudaCoder> coder, OwnedEvent ready,
             const collective::Operation& operation);

  base::Status make_host_memory(const collective::Operation& operation);
  // A workspace whose stream is ordered behind the caller's.
  base::Result<CudaCoder::Lease> begin();
  DeviceArray input(const collective::Extent& extent) const;
  DeviceArray output(const collective::Extent& extent) const;
  DeviceArray values_of(const collective::Extent& extent, const float* residual,
                        Sequence& steps) const;
  static void read_sums(const collective::DeviceLevels& levels,
                        const collective::DeviceLevelSums& sums, const std::vector<bool>& cleared,
                        Store store, const DeviceArray& values, Sequence& steps);

  std::shared_ptr<CudaCoder> coder_;
  OwnedEvent ready_;  // input is complete, and output may be written
  DevicePointer input_;
  DevicePointer output_;
  Element element_;
  packetize::PlaneMemory host_input_;  // pinned, for exact operations
  packetize::PlaneMemory host_output_;
  SequenceTimes times_;
};

}  // namespace spillway::gpu
