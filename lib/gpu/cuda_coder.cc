// SPDX-License-Identifier: Apache-2.0
#include "gpu/cuda_coder.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

namespace spillway::gpu {

base::Result<std::unique_ptr<Workspace>> Workspace::make(const DeviceHandle& device) {
  base::Result<OwnedStream> stream = OwnedStream::make(device);
  if (!stream.ok()) {
    return stream.status();
  }
  base::Result<OwnedEvent> done = OwnedEvent::make(device, OwnedEvent::Waiting::kSleeping);
  if (!done.ok()) {
    return done.status();
  }
  return std::unique_ptr<Workspace>(
      new Workspace(device, std::move(stream).value(), std::move(done).value()));
}

base::Result<DevicePointer> Workspace::buffer(Buffer which, std::size_t bytes) {
  DeviceMemory& memory = buffers_[static_cast<unsigned>(which)];
  if (memory.size() < bytes) {
    memory = DeviceMemory();  // free it before allocating a larger one
    base::Result<DeviceMemory> made = DeviceMemory::make(device_, std::bit_ceil(bytes));
    if (!made.ok()) {
      return made.status();
    }
    memory = std::move(made).value();
  }
  return memory.get();
}

base::Result<std::uint8_t*> Workspace::staging(std::size_t bytes) {
  if (staging_.size() < bytes) {
    staging_ = PinnedMemory();
    base::Result<PinnedMemory> made = PinnedMemory::make(device_, std::bit_ceil(bytes));
    if (!made.ok()) {
      return made.status();
    }
    staging_ = std::move(made).value();
  }
  return staging_.get();
}

base::Status Workspace::wait() {
  const base::Status status = done_.record(stream_.get());
  return status.ok() ? done_.wait() : status;
}

base::Status Workspace::mark(std::size_t number) {
  if (number == marks_.size()) {
    base::Result<OwnedEvent> made = OwnedEvent::make(device_);
    if (!made.ok()) {
      return made.status();
    }
    marks_.push_back(std::move(made).value());
  }
  return marks_[number].record(stream_.get());
}

base::Duration Workspace::time_from(std::size_t number, std::size_t count) const {
  const OwnedEvent& end = number + 1 < count ? marks_[number + 1] : done_;
  const base::Result<double> seconds = OwnedEvent::seconds_between(marks_[number], end);
  return seconds.ok() ? base::Duration(static_cast<std::int64_t>(*seconds * 1e9))
                      : base::Duration();
}

base::Result<std::shared_ptr<CudaCoder>> CudaCoder::make(int ordinal) {
  const base::Result<DeviceHandle> device = Device::open(ordinal);
  if (!device.ok()) {
    return device.status();
  }
  base::Result<PlaneCoder> planes = PlaneCoder::make(*device);
  if (!planes.ok()) {
    return planes.status();
  }
  return std::shared_ptr<CudaCoder>(new CudaCoder(std::move(planes).value()));
}

base::Result<std::shared_ptr<CudaCoder>> CudaCoder::of(int ordinal) {
  // Never destroyed: the driver may be unloaded before statics are destroyed.
  static auto& mutex = *new std::mutex();
  static auto& coders =
      *new std::array<std::optional<base::Result<std::shared_ptr<CudaCoder>>>, kMaxDevices>();
  if (ordinal < 0 || ordinal >= kMaxDevices) {
    return base::invalid_argument(fmt::format("there is no GPU {}", ordinal));
  }
  const std::lock_guard lock(mutex);
  auto& entry = coders[static_cast<std::size_t>(ordinal)];
  if (!entry) {
    entry = make(ordinal);
  }
  return *entry;
}

base::Result<packetize::PlaneMemory> CudaCoder::take_pinned(std::size_t bytes) {
  const std::size_t size = std::bit_ceil(std::max<std::size_t>(bytes, 4096));
  PinnedMemory memory;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(idle_pinned_.begin(), idle_pinned_.end(),
                                    [size](const auto& idle) { return idle.size() == size; });
    if (found != idle_pinned_.end()) {
      memory = std::move(*found);
      idle_pinned_.erase(found);
      idle_pinned_bytes_ -= size;
    }
  }
  if (memory.size() == 0) {
    base::Result<PinnedMemory> made = PinnedMemory::make(device(), size);
    if (!made.ok()) {
      return made.status();
    }
    memory = std::move(made).value();
  }
  std::uint8_t* const bytes_of_it = memory.get();
  const auto owner = std::make_shared<PinnedMemory>(std::move(memory));
  return packetize::PlaneMemory(bytes_of_it,
                                [coder = shared_from_this(), owner](const std::uint8_t*) {
                                  coder->give_back(std::move(*owner));
                                });
}

void CudaCoder::give_back(PinnedMemory memory) {
  const std::lock_guard lock(mutex_);
  if (idle_pinned_bytes_ + memory.size() <= kMaxIdlePinnedBytes) {
    idle_pinned_bytes_ += memory.size();
    idle_pinned_.push_back(std::move(memory));
  }
}

base::Result<CudaCoder::Lease> CudaCoder::take_workspace() {
  std::unique_ptr<Workspace> taken;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_workspaces_.empty()) {
      taken = std::move(idle_workspaces_.back());
      idle_workspaces_.pop_back();
    }
  }
  if (!taken) {
    base::Result<std::unique_ptr<Workspace>> made = Workspace::make(device());
    if (!made.ok()) {
      return made.status();
    }
    taken = std::move(made).value();
  }
  return Lease(taken.release(), [coder = shared_from_this()](Workspace* workspace) {
    const std::lock_guard lock(coder->mutex_);
    coder->idle_workspaces_.emplace_back(workspace);
  });
}

using packetize::KeptPlanes;
using packetize::PacketPlan;

void Sequence::enter(Step step) {
  if (status_.ok() && (steps_.empty() || steps_.back() != step)) {
    add(workspace_.mark(steps_.size()));
    steps_.push_back(step);
  }
}

void Sequence::wait() {
  add(workspace_.wait());
  if (status_.ok()) {
    count_times();
  }
}

void Sequence::count_times() {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    std::atomic<std::int64_t>& part = steps_[i] == Step::kToDevice ? times_.to_device
                                      : steps_[i] == Step::kToHost ? times_.to_host
                                      : work_ == Work::kEncode     ? times_.encode
                                                                   : times_.decode;
    part += workspace_.time_from(i, steps_.size()).count();
  }
  steps_.clear();
}

DevicePointer Sequence::buffer(Buffer which, std::size_t bytes) {
  if (!status_.ok()) {
    return 0;
  }
  const base::Result<DevicePointer> memory = workspace_.buffer(which, bytes);
  add(memory.status());
  return memory.ok() ? *memory : 0;
}

std::uint8_t* Sequence::staging(std::size_t bytes) {
  const base::Result<std::uint8_t*> memory =
      status_.ok() ? workspace_.staging(bytes) : base::Result<std::uint8_t*>(status_);
  add(memory.status());
  return memory.ok() ? *memory : nullptr;
}

void Sequence::copy_in(DevicePointer to, const void* from, std::size_t bytes) {
  enter(Step::kToDevice);
  if (status_.ok()) {
    add(workspace_.stream().copy_to_device(to, from, bytes));
  }
}

void Sequence::copy_out(void* to, DevicePointer from, std::size_t bytes) {
  enter(Step::kToHost);
  if (status_.ok()) {
    add(workspace_.stream().copy_to_host(to, from, bytes));
  }
}

void Sequence::copy(float* to, DevicePointer from, std::size_t count) {
  enter(Step::kCalculate);
  if (status_.ok()) {
    add(coder_.device()->copy(pointer_of(to), from, count * sizeof(float), stream()));
  }
}

void Sequence::clear(DevicePointer to, std::size_t bytes) {
  enter(Step::kCalculate);
  if (status_.ok()) {
    add(coder_.device()->clear(to, bytes, stream()));
  }
}

void Sequence::widen(const DeviceArray& from, const float* residual, DevicePointer to,
                     std::size_t count) {
  enter(Step::kCalculate);
  if (status_.ok()) {
    add(coder_.planes().widen(from, pointer_of(residual), to, count, stream()));
  }
}

void Sequence::clear_unless_finite(float* values, std::size_t count) {
  enter(Step::kCalculate);
  const DevicePointer found = buffer(Buffer::kFound, sizeof(unsigned));
  if (status_.ok()) {
    add(coder_.planes().clear_unless_finite(pointer_of(values), count, found, stream()));
  }
}

// ------------------------------------------------------------------ planes

DeviceMessage Sequence::room_for(const PacketPlan& plan) {
  return {buffer(Buffer::kPlanes, packetize::plane_memory_bytes(plan)),
          buffer(Buffer::kRows, plan.layout().row_count() * sizeof(RowCode)), 0};
}

DeviceMessage Sequence::upload(const PacketPlan& plan, const KeptPlanes& came,
                               std::span<const std::uint16_t> received, std::uint8_t* staged) {
  DeviceMessage message = room_for(plan);
  message.received = buffer(Buffer::kReceived, received.size_bytes());
  if (!status_.ok()) {
    return message;
  }
  const std::size_t row_bytes = came.rows.size() * sizeof(RowCode);
  std::memcpy(staged, came.rows.data(), row_bytes);
  std::memcpy(staged + row_bytes, received.data(), received.size_bytes());
  copy_in(message.payload, came.memory.get(), packetize::plane_memory_bytes(plan));
  copy_in(message.rows, staged, row_bytes);
  copy_in(message.received, staged + row_bytes, received.size_bytes());
  return message;
}

void Sequence::download(const PacketPlan& plan, const DeviceMessage& message, std::uint8_t* staged,
                        KeptPlanes& coded) {
  const std::size_t row_bytes = coded.rows.size() * sizeof(RowCode);
  copy_out(coded.memory.get(), message.payload, packetize::plane_memory_bytes(plan));
  copy_out(staged, message.rows, row_bytes);
  wait();
  if (!status_.ok()) {
    return;
  }
  std::memcpy(coded.rows.data(), staged, row_bytes);
  for (std::size_t packet = 0; packet < coded.bytes.size(); ++packet) {
    coded.bytes[packet] = static_cast<std::uint16_t>(plan.place(packet).count / 8 * plan.planes());
  }
}

void Sequence::encode(const PacketPlan& plan, std::uint64_t key, const DeviceArray& values,
                      const DeviceMessage& message, DevicePointer factors) {
  enter(Step::kCalculate);
  if (status_.ok()) {
    add(coder_.planes().encode(plan, key, all_rows(plan), values, message, stream(), factors));
  }
}

void Sequence::decode(const PacketPlan& plan, std::uint64_t key, const DeviceMessage& message,
                      Store store, const DeviceArray& values) {
  enter(Step::kCalculate);
  if (status_.ok()) {
    add(coder_.planes().decode(plan, key, all_rows(plan), message, codec::Estimate::kUnbiased,
                               store, values, stream()));
  }
}

// ------------------------------------------------------------------ levels

void Sequence::measure(const collective::DeviceLevels& levels, const DeviceArray& values,
                       DevicePointer measures) {
  enter(Step::kCalculate);
  if (status_.ok()) {
    add(coder_.levels().measure(levels, values, measures, stream()));
  }
}

void Sequence::round(const collective::DeviceLevels& levels, const DeviceArray& values,
                     DevicePointer rows, DevicePointer numbers, DevicePointer clipped,
                     DevicePointer words) {
  enter(Step::kCalculate);
  clear(clipped, sizeof(unsigned));
  if (status_.ok()) {
    add(coder_.levels().round(levels, values, rows, numbers, clipped, words, stream()));
  }
}

void Sequence::decode_sums(const collective::DeviceLevels& levels, DevicePointer words,
                           DevicePointer chunks, DevicePointer rows, Store store,
                           const DeviceArray& values) {
  enter(Step::kCalculate);
  if (status_.ok()) {
    add(coder_.levels().decode(levels, words, chunks, rows, store, values, stream()));
  }
}

}  // namespace spillway::gpu
