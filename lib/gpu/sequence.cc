// SPDX-License-Identifier: Apache-2.0
#include "gpu/sequence.h"

#include <cstring>

namespace spillway::gpu {

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

void Sequence::widen(const DeviceArray& from, const float* owed, DevicePointer to,
                     std::size_t count) {
  enter(Step::kCalculate);
  if (status_.ok()) {
    add(coder_.planes().widen(from, pointer_of(owed), to, count, stream()));
  }
}

void Sequence::forget_unless_finite(float* values, std::size_t count) {
  enter(Step::kCalculate);
  const DevicePointer found = buffer(Buffer::kFound, sizeof(unsigned));
  if (status_.ok()) {
    add(coder_.planes().forget_unless_finite(pointer_of(values), count, found, stream()));
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
