// SPDX-License-Identifier: Apache-2.0
#include "gpu/cuda_tensor.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

namespace spillway::gpu {
namespace {

using collective::Extent;
using packetize::KeptPlanes;
using packetize::PacketPlan;
using Buffer = Workspace::Buffer;

static_assert(sizeof(codec::RowHeader) == sizeof(RowCode));

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

DevicePointer pointer_of(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory);
}

// Calls to the device, one after the other as long as they succeed, on one workspace.
class Sequence {
 public:
  Sequence(CudaCoder& coder, Workspace& workspace) : coder_(coder), workspace_(workspace) {}

  Stream stream() { return workspace_.stream().get(); }
  const base::Status& status() const { return status_; }
  void add(base::Status status) {
    if (status_.ok()) {
      status_ = std::move(status);
    }
  }

  DevicePointer buffer(Buffer which, std::size_t bytes) {
    if (!status_.ok()) {
      return 0;
    }
    const base::Result<DevicePointer> memory = workspace_.buffer(which, bytes);
    add(memory.status());
    return memory.ok() ? *memory : 0;
  }

  // Room for a message on the device.
  DeviceMessage room_for(const PacketPlan& plan) {
    return {buffer(Buffer::kPlanes, packetize::plane_memory_bytes(plan)),
            buffer(Buffer::kRows, plan.layout().row_count() * sizeof(RowCode)), 0};
  }

  // What came of a message, onto the device. `staged`: pinned, message_bytes() long.
  DeviceMessage upload(const PacketPlan& plan, const KeptPlanes& came,
                       std::span<const std::uint16_t> received, std::uint8_t* staged) {
    DeviceMessage message = room_for(plan);
    message.received = buffer(Buffer::kReceived, received.size_bytes());
    if (!status_.ok()) {
      return message;
    }
    const std::size_t row_bytes = came.rows.size() * sizeof(RowCode);
    std::memcpy(staged, came.rows.data(), row_bytes);
    std::memcpy(staged + row_bytes, received.data(), received.size_bytes());
    add(copy_in(message.payload, came.memory.get(), packetize::plane_memory_bytes(plan)));
    add(copy_in(message.rows, staged, row_bytes));
    add(copy_in(message.received, staged + row_bytes, received.size_bytes()));
    return message;
  }
  static std::size_t staged_bytes(const PacketPlan& plan) {
    return plan.layout().row_count() * sizeof(RowCode) + plan.packet_count() * 2;
  }

  std::uint8_t* staging(std::size_t bytes) {
    const base::Result<std::uint8_t*> memory =
        status_.ok() ? workspace_.staging(bytes) : base::Result<std::uint8_t*>(status_);
    add(memory.status());
    return memory.ok() ? *memory : nullptr;
  }

  base::Status copy_in(DevicePointer to, const void* from, std::size_t bytes) {
    return status_.ok() ? workspace_.stream().copy_to_device(to, from, bytes) : status_;
  }

  // A coded message back to the host, where all of it is there.
  void download(const PacketPlan& plan, const DeviceMessage& message, std::uint8_t* staged,
                KeptPlanes& coded) {
    const std::size_t row_bytes = coded.rows.size() * sizeof(RowCode);
    if (status_.ok()) {
      add(workspace_.stream().copy_to_host(coded.memory.get(), message.payload,
                                           packetize::plane_memory_bytes(plan)));
    }
    if (status_.ok()) {
      add(workspace_.stream().copy_to_host(staged, message.rows, row_bytes));
    }
    wait();
    if (!status_.ok()) {
      return;
    }
    std::memcpy(coded.rows.data(), staged, row_bytes);
    for (std::size_t packet = 0; packet < coded.bytes.size(); ++packet) {
      coded.bytes[packet] =
          static_cast<std::uint16_t>(plan.place(packet).count / 8 * plan.planes());
    }
  }

  // Whatever went wrong before: what was started uses memory that is somebody else's afterwards.
  void wait() { add(workspace_.wait()); }

  void encode(const PacketPlan& plan, std::uint64_t key, const DeviceArray& values,
              const DeviceMessage& message, DevicePointer factors = 0) {
    if (status_.ok()) {
      add(coder_.planes().encode(plan, key, all_rows(plan), values, message, stream(), factors));
    }
  }
  void decode(const PacketPlan& plan, std::uint64_t key, const DeviceMessage& message, Store store,
              const DeviceArray& values) {
    if (status_.ok()) {
      add(coder_.planes().decode(plan, key, all_rows(plan), message, codec::Estimate::kUnbiased,
                                 store, values, stream()));
    }
  }
  void widen(const DeviceArray& from, const float* owed, DevicePointer to, std::size_t count) {
    if (status_.ok()) {
      add(coder_.planes().widen(from, pointer_of(owed), to, count, stream()));
    }
  }
  void copy(float* to, DevicePointer from, std::size_t count) {
    if (status_.ok()) {
      add(coder_.device()->copy(pointer_of(to), from, count * sizeof(float), stream()));
    }
  }
  void clear(float* values, std::size_t count) {
    if (status_.ok()) {
      add(coder_.device()->clear(pointer_of(values), count * sizeof(float), stream()));
    }
  }
  void forget_unless_finite(float* values, std::size_t count) {
    const DevicePointer found = buffer(Buffer::kFound, sizeof(unsigned));
    if (status_.ok()) {
      add(coder_.planes().forget_unless_finite(pointer_of(values), count, found, stream()));
    }
  }

 private:
  CudaCoder& coder_;
  Workspace& workspace_;
  base::Status status_;
};

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
  base::Result<OwnedEvent> ready =
      OwnedEvent::make((*coder)->device(), OwnedEvent::Waiting::kSleeping);
  if (!ready.ok()) {
    return ready.status();
  }
  if (const base::Status status = ready.value().record(stream); !status.ok()) {
    return status;
  }
  return std::shared_ptr<collective::DeviceTensor>(
      new CudaTensor(*coder, std::move(ready).value(), operation));
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
  Sequence steps(*coder_, *workspace.value());
  steps.clear(values, count);
  steps.wait();
  if (!steps.status().ok()) {
    return steps.status();
  }
  return std::shared_ptr<float[]>(memory, values);
}

base::Status CudaTensor::encode(const Extent& extent, const PacketPlan& plan, std::uint64_t key,
                                float* owed, KeptPlanes& coded) {
  base::Result<CudaCoder::Lease> workspace = begin();
  if (!workspace.ok()) {
    return workspace.status();
  }
  Sequence steps(*coder_, *workspace.value());
  std::uint8_t* const staged = steps.staging(Sequence::staged_bytes(plan));
  const DeviceMessage message = steps.room_for(plan);
  DeviceArray values = input(extent);
  if (owed != nullptr) {
    values = {steps.buffer(Buffer::kSums, extent.count * sizeof(float)), Element::kFloat32};
    steps.widen(input(extent), owed, values.values, extent.count);
    steps.copy(owed, values.values, extent.count);
    steps.forget_unless_finite(owed, extent.count);
  }
  steps.encode(plan, key, values, message);
  steps.download(plan, message, staged, coded);
  return steps.status();
}

base::Status CudaTensor::settle(const Extent& extent, const PacketPlan& plan, std::uint64_t key,
                                const KeptPlanes& sent, std::span<const std::uint16_t> used,
                                float* owed) {
  base::Result<CudaCoder::Lease> workspace = begin();
  if (!workspace.ok()) {
    return workspace.status();
  }
  Sequence steps(*coder_, *workspace.value());
  std::uint8_t* const staged = steps.staging(Sequence::staged_bytes(plan));
  std::vector<std::uint16_t> bytes(plan.packet_count());
  for (std::size_t packet = 0; packet < std::min(bytes.size(), used.size()); ++packet) {
    bytes[packet] = std::min(used[packet], sent.bytes[packet]);
  }
  const DeviceMessage message = steps.upload(plan, sent, bytes, staged);
  steps.decode(plan, key, message, Store::kSubtract, {pointer_of(owed), Element::kFloat32});
  steps.forget_unless_finite(owed, extent.count);
  steps.wait();
  return steps.status();
}

base::Status CudaTensor::decode(const Extent& extent, const PacketPlan& plan, std::uint64_t key,
                                const KeptPlanes& came) {
  base::Result<CudaCoder::Lease> workspace = begin();
  if (!workspace.ok()) {
    return workspace.status();
  }
  Sequence steps(*coder_, *workspace.value());
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
  Sequence steps(*coder_, *workspace.value());
  // A place for each message's rows and bytes: copies of earlier ones may still be under way.
  const std::size_t each = Sequence::staged_bytes(sum.contribution_plan);
  const std::size_t factor_bytes = sum.factors.size() * sizeof(float);
  std::uint8_t* const staged = steps.staging(each * sum.contributions.size() +
                                             Sequence::staged_bytes(sum.sum_plan) + factor_bytes);
  // Room for both kinds of message before anything is under way.
  steps.room_for(sum.contribution_plan);
  const DeviceMessage message = steps.room_for(sum.sum_plan);
  const DeviceArray sums{steps.buffer(Buffer::kSums, extent.count * sizeof(float)),
                         Element::kFloat32};
  steps.widen(input(extent), sum.owed, sums.values, extent.count);
  if (sum.owed != nullptr) {
    steps.clear(sum.owed, extent.count);
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
    steps.add(steps.copy_in(factors, rest, factor_bytes));
  }
  steps.encode(sum.sum_plan, sum.key, sums, message, factors);
  steps.decode(sum.sum_plan, sum.key, message, Store::kWrite, output(extent));
  steps.download(sum.sum_plan, message, rest + factor_bytes, coded);
  return steps.status();
}

}  // namespace spillway::gpu
