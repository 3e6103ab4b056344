// SPDX-License-Identifier: Apache-2.0
#include "gpu/cuda_coder.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
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

}  // namespace spillway::gpu
