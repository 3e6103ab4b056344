// SPDX-License-Identifier: Apache-2.0
#include "gpu/cuda_tensor.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "gpu/device_coder.h"

namespace spillway::gpu {
namespace {

using collective::DeviceLevels;
using collective::DeviceLevelSums;
using collective::Extent;
using packetize::KeptPlanes;
using packetize::PacketPlan;
using Buffer = Workspace::Buffer;

Element element_of(collective::DataType type) {
  switch (type) {
    case collective::DataType::kBfloat16:
      return Element::kBfloat16;
    case collective::DataType::kFloat16:
      return Element::kFloat16;
    default:
      return Element::kFloat32;
  }
}

std::size_t bytes_of(Element element) {
  return element == Element::kFloat32 ? 4 : 2;
}

}  // namespace

CudaTensor::CudaTensor(std::shared_ptr<CudaCoder> coder, OwnedEvent ready,
                       const collective::Operation& operation)
    : coder_(std::move(coder)),
      ready_(std::move(ready)),
      input_(pointer_of(operation.input)),
      output_(pointer_of(operation.output)),
      element_(element_of(operation.type)) {}

base::Result<std::shared_ptr<collective::DeviceTensor>> CudaTensor::make(
    int ordinal, const collective::Operation& operation, Stream stream) {
  base::Result<std::shared_ptr<CudaCoder>> coder = CudaCoder::of(ordinal);
  if (!coder.ok()) {
    return coder.status();
  }
  if (base::Status status = (*coder)->device()->check_not_capturing(stream); !status.ok()) {
    return status;
  }
  base::Result<OwnedEvent> ready =
      OwnedEvent::make((*coder)->device(), OwnedEvent::Waiting::kSleepingUntimed);
  if (!ready.ok()) {
    return ready.status();
  }
  if (const base::Status status = ready.value().record(stream); !status.ok()) {
    return status;
  }
  std::shared_ptr<CudaTensor> tensor(new CudaTensor(*coder, std::move(ready).value(), operation));
  if (!operation.tolerance) {
    if (base::Status status = tensor->make_host_memory(operation); !status.ok()) {
      return status;
    }
  }
  return std::shared_ptr<collective::DeviceTensor>(std::move(tensor));
}

base::Status CudaTensor::make_host_memory(const collective::Operation& operation) {
  base::Result<packetize::PlaneMemory> input = coder_->take_pinned(operation.bytes());
  base::Result<packetize::PlaneMemory> output =
      input_ == output_ || !input.ok() ? input : coder_->take_pinned(operation.bytes());
  if (output.ok()) {
    host_input_ = *input;
    host_output_ = *output;
  }
  return output.status();
}

base::Status CudaTensor::copy_to_host(std::size_t offset, std::size_t bytes) {
  base::Result<CudaCoder::Lease> workspace = begin();
  if (!workspace.ok()) {
    return workspace.status();
  }
  Sequence steps(*coder_, *workspace.value(), Sequence::Work::kEncode, times_);
  steps.copy_out(host_input_.get() + offset, input_ + offset, bytes);
  steps.wait();
  return steps.status();
}

base::Status CudaTensor::copy_to_device(std::size_t offset, std::size_t bytes) {
  base::Result<CudaCoder::Lease> workspace = begin();
  if (!workspace.ok()) {
    return workspace.status();
  }
  Sequence steps(*coder_, *workspace.value(), Sequence::Work::kDecode, times_);
  steps.copy_in(output_ + offset, host_output_.get() + offset, bytes);
  steps.wait();
  return steps.status();
}

collective::PartTimes CudaTensor::times() const {
  collective::PartTimes times;
  times.encode = base::Duration(times_.encode.load());
  times.to_host = base::Duration(times_.to_host.load());
  times.to_device = base::Duration(times_.to_device.load());
  times.decode = base::Duration(times_.decode.load());
  return times;
}

base::Result<KeptPlanes> CudaTensor::make_planes(const PacketPlan& plan) {
  base::Result<packetize::PlaneMemory> memory =
      coder_->take_pinned(packetize::plane_memory_bytes(plan));
  if (!memory.ok()) {
    return memory.status();
  }
  return KeptPlanes::make_in(plan, std::move(memory).value());
}

base::Result<CudaCoder::Lease> CudaTensor::begin() {
  base::Result<CudaCoder::Lease> workspace = coder_->take_workspace();
  if (workspace.ok()) {
    const base::Status status = ready_.let_wait(workspace.value()->stream().get());
    if (!status.ok()) {
      return status;
    }
  }
  return workspace;
}

DeviceArray CudaTensor::input(const Extent& extent) const {
  return {input_ + extent.first * bytes_of(element_), element_};
}

DeviceArray CudaTensor::output(const Extent& extent) const {
  return {output_ + extent.first * bytes_of(element_), element_};
}

base::Result<std::shared_ptr<float[]>> CudaTensor::make_residual(std::size_t count) {
  base::Result<DeviceMemory> made = DeviceMemory::make(coder_->device(), count * sizeof(float));
  if (!made.ok()) {
    return made.status();
  }
  base::Result<CudaCoder::Lease> workspace = coder_->take_workspace();
  if (!workspace.ok()) {
    return workspace.status();
  }
  const auto memory = std::make_shared<DeviceMemory>(std::move(made).value());
  auto* const values = reinterpret_cast<float*>(static_cast<std::uintptr_t>(memory->get()));
  Sequence steps(*coder_, *workspace.value(), Sequence::Work::kDecode, times_);
  steps.clear(memory->get(), count * sizeof(float));
  steps.wait();
  if (!steps.status().ok()) {
    return steps.status();
  }
  return std::shared_ptr<float[]>(memory, values);
}

base::Status CudaTensor::encode(const Extent& extent, const PacketPlan& plan, std::uint64_t key,
                                float* residual, KeptPlanes& coded) {
  base::Result<CudaCoder::Lease> workspace = begin();
  if (!workspace.ok()) {
    return workspace.status();
  }
  Sequence steps(*coder_, *workspace.value(), Sequence::Work::kEncode, times_);
  std::uint8_t* const staged = steps.staging(Sequence::staged_bytes(plan));
  const DeviceMessage message = steps.room_for(plan);
  DeviceArray values = input(extent);
  if (residual != nullptr) {
    values = {steps.buffer(Buffer::kSums, extent.count * sizeof(float)), Element::kFloat32};
    steps.widen(input(extent), residual, values.values, extent.count);
    steps.copy(residual, values.values, extent.count);
    steps.clear_unless_finite(residual, extent.count);
  }
  steps.encode(plan, key, values, message);
  steps.download(plan, message, staged, coded);
  return steps.status();
}

base::Status CudaTensor::settle(const Extent& extent, const PacketPlan& plan, std::uint64_t key,
                                const KeptPlanes& sent, std::span<const std::uint16_t> used,
                                float* residual) {
  base::Result<CudaCoder::Lease> workspace = begin();
  if (!workspace.ok()) {
    return workspace.status();
  }
  Sequence steps(*coder_, *workspace.value(), Sequence::Work::kDecode, times_);
  std::uint8_t* const staged = steps.staging(Sequence::staged_bytes(plan));
  std::vector<std::uint16_t> bytes(plan.packet_count());
  for (std::size_t packet = 0; packet < std::min(bytes.size(), used.size()); ++packet) {
    bytes[packet] = std::min(used[packet], sent.bytes[packet]);
  }
  const DeviceMessage message = steps.upload(plan, sent, bytes, staged);
  steps.decode(plan, key, message, Store::kSubtract, {pointer_of(residual), Element::kFloat32});
  steps.clear_unless_finite(residual, extent.count);
  steps.wait();
  return steps.status();
}

base::Status CudaTensor::decode(const Extent& extent, const PacketPlan& plan, std::uint64_t key,
                                const KeptPlanes& came) {
  base::Result<CudaCoder::Lease> workspace = begin();
  if (!workspace.ok()) {
    return workspace.status();
  }
  Sequence steps(*coder_, *workspace.value(), Sequence::Work::kDecode, times_);
  std::uint8_t* const staged = steps.staging(Sequence::staged_bytes(plan));
  const DeviceMessage message = steps.upload(plan, came, came.bytes, staged);
  steps.decode(plan, key, message, Store::kWrite, output(extent));
  steps.wait();
  return steps.status();
}

base::Status CudaTensor::add_up(const Extent& extent, const collective::DeviceSum& sum,
                                KeptPlanes& coded) {
  base::Result<CudaCoder::Lease> workspace = begin();
  if (!workspace.ok()) {
    return workspace.status();
  }
  Sequence steps(*coder_, *workspace.value(), Sequence::Work::kDecode, times_);
  // Each message needs its own staging memory: copies of earlier ones may still be in progress.
  const std::size_t each = Sequence::staged_bytes(sum.contribution_plan);
  const std::size_t factor_bytes = sum.factors.size() * sizeof(float);
  std::uint8_t* const staged = steps.staging(each * sum.contributions.size() +
                                             Sequence::staged_bytes(sum.sum_plan) + factor_bytes);
  // Reserve room for both kinds of message before any work starts.
  steps.room_for(sum.contribution_plan);
  const DeviceMessage message = steps.room_for(sum.sum_plan);
  const DeviceArray sums{steps.buffer(Buffer::kSums, extent.count * sizeof(float)),
                         Element::kFloat32};
  steps.widen(input(extent), sum.residual, sums.values, extent.count);
  if (sum.residual != nullptr) {
    steps.clear(pointer_of(sum.residual), extent.count * sizeof(float));
  }
  for (std::size_t i = 0; i < sum.contributions.size() && steps.status().ok(); ++i) {
    const collective::DeviceContribution& part = sum.contributions[i];
    const DeviceMessage came =
        steps.upload(sum.contribution_plan, *part.planes, part.used, staged + i * each);
    steps.decode(sum.contribution_plan, part.key, came, Store::kAdd, sums);
  }
  const DevicePointer factors = steps.buffer(Buffer::kFactors, factor_bytes);
  std::uint8_t* const rest = staged + sum.contributions.size() * each;
  if (steps.status().ok()) {
    std::memcpy(rest, sum.factors.data(), factor_bytes);
    steps.copy_in(factors, rest, factor_bytes);
  }
  steps.encode(sum.sum_plan, sum.key, sums, message, factors);
  steps.decode(sum.sum_plan, sum.key, message, Store::kWrite, output(extent));
  steps.download(sum.sum_plan, message, rest + factor_bytes, coded);
  return steps.status();
}

// ------------------------------------------------------------------ levels

base::Result<std::shared_ptr<std::uint64_t[]>> CudaTensor::make_words(std::size_t count) {
  base::Result<packetize::PlaneMemory> memory = coder_->take_pinned(count * sizeof(std::uint64_t));
  if (!memory.ok()) {
    return memory.status();
  }
  auto* const words = reinterpret_cast<std::uint64_t*>(memory->get());
  return std::shared_ptr<std::uint64_t[]>(*memory, words);
}

// The input plus its residual.
DeviceArray CudaTensor::values_of(const Extent& extent, const float* residual,
                                  Sequence& steps) const {
  if (residual == nullptr) {
    return input(extent);
  }
  const DevicePointer sums = steps.buffer(Buffer::kSums, extent.count * sizeof(float));
  steps.widen(input(extent), residual, sums, extent.count);
  return {sums, Element::kFloat32};
}

base::Status CudaTensor::measure(const DeviceLevels& levels, const float* residual,
                                 std::span<codec::RotatedRow> rows) {
  base::Result<CudaCoder::Lease> workspace = begin();
  if (!workspace.ok()) {
    return workspace.status();
  }
  static_assert(sizeof(RowMeasure) == sizeof(codec::RotatedRow));
  Sequence steps(*coder_, *workspace.value(), Sequence::Work::kEncode, times_);
  std::uint8_t* const staged = steps.staging(rows.size_bytes());
  const DevicePointer measures = steps.buffer(Buffer::kRows, rows.size_bytes());
  steps.measure(levels, values_of(levels.extent, residual, steps), measures);
  steps.copy_out(staged, measures, rows.size_bytes());
  steps.wait();
  if (steps.status().ok()) {
    std::memcpy(rows.data(), staged, rows.size_bytes());
  }
  return steps.status();
}

base::Status CudaTensor::round(const DeviceLevels& levels, const float* residual,
                               std::span<const codec::RotatedRow> rows,
                               std::span<const float> scales, std::span<std::uint64_t> words,
                               std::size_t& clipped) {
  base::Result<CudaCoder::Lease> workspace = begin();
  if (!workspace.ok()) {
    return workspace.status();
  }
  Sequence steps(*coder_, *workspace.value(), Sequence::Work::kEncode, times_);
  const std::vector<LevelRow> rounded = rounded_rows(levels, rows, scales);
  const std::size_t row_bytes = rounded.size() * sizeof(LevelRow);
  std::uint8_t* const staged = steps.staging(row_bytes + sizeof(unsigned));
  const DevicePointer row_memory = steps.buffer(Buffer::kRows, row_bytes);
  const DevicePointer numbers =
      steps.buffer(Buffer::kNumbers, coordinates_of(levels.rows) * sizeof(std::uint16_t));
  const DevicePointer found = steps.buffer(Buffer::kFound, sizeof(unsigned));
  const DevicePointer packed = steps.buffer(Buffer::kPlanes, words.size_bytes());
  const DeviceArray values = values_of(levels.extent, residual, steps);
  if (steps.status().ok()) {
    std::memcpy(staged, rounded.data(), row_bytes);
  }
  steps.copy_in(row_memory, staged, row_bytes);
  steps.round(levels, values, row_memory, numbers, found, packed);
  steps.copy_out(words.data(), packed, words.size_bytes());
  steps.copy_out(staged + row_bytes, found, sizeof(unsigned));
  steps.wait();
  if (steps.status().ok()) {
    unsigned count = 0;
    std::memcpy(&count, staged + row_bytes, sizeof count);
    clipped = count;
  }
  return steps.status();
}

// Copies sums to the device and decodes them there.
void CudaTensor::read_sums(const DeviceLevels& levels, const DeviceLevelSums& sums,
                           const std::vector<bool>& cleared, Store store, const DeviceArray& values,
                           Sequence& steps) {
  const std::vector<LevelRow> rows = decoded_rows(levels, sums, cleared);
  const std::vector<ChunkShare> chunks = chunk_shares(levels, sums);
  const std::size_t row_bytes = rows.size() * sizeof(LevelRow);
  const std::size_t chunk_bytes = chunks.size() * sizeof(ChunkShare);
  std::uint8_t* const staged = steps.staging(row_bytes + chunk_bytes);
  const DevicePointer words = steps.buffer(Buffer::kPlanes, sums.words.size_bytes());
  const DevicePointer row_memory = steps.buffer(Buffer::kRows, row_bytes);
  const DevicePointer chunk_memory = steps.buffer(Buffer::kFactors, chunk_bytes);
  if (steps.status().ok()) {
    std::memcpy(staged, rows.data(), row_bytes);
    std::memcpy(staged + row_bytes, chunks.data(), chunk_bytes);
  }
  steps.copy_in(words, sums.words.data(), sums.words.size_bytes());
  steps.copy_in(row_memory, staged, row_bytes);
  steps.copy_in(chunk_memory, staged + row_bytes, chunk_bytes);
  steps.decode_sums(levels, words, chunk_memory, row_memory, store, values);
  steps.wait();
}

base::Status CudaTensor::decode_sums(const DeviceLevels& levels, const DeviceLevelSums& sums) {
  base::Result<CudaCoder::Lease> workspace = begin();
  if (!workspace.ok()) {
    return workspace.status();
  }
  Sequence steps(*coder_, *workspace.value(), Sequence::Work::kDecode, times_);
  read_sums(levels, sums, {}, Store::kWrite, output(levels.extent), steps);
  return steps.status();
}

base::Status CudaTensor::settle_levels(const DeviceLevels& levels, const DeviceLevelSums& sums,
                                       const std::vector<bool>& not_finite, float* residual) {
  base::Result<CudaCoder::Lease> workspace = begin();
  if (!workspace.ok()) {
    return workspace.status();
  }
  Sequence steps(*coder_, *workspace.value(), Sequence::Work::kDecode, times_);
  steps.widen(input(levels.extent), residual, pointer_of(residual), levels.extent.count);
  read_sums(levels, sums, not_finite, Store::kSubtract, {pointer_of(residual), Element::kFloat32},
            steps);
  return steps.status();
}

}  // namespace spillway::gpu
