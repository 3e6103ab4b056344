// SPDX-License-Identifier: Apache-2.0
//
// Tensors in a GPU's memory to the planes of their packets and back, the bits those of
// packetize::Packetizer and Depacketizer: codec/kernels.h says why that can be.
//
// Payload lies as shape_of() says (launch_plan.h). Rows may be coded in slices, as many launches as
// it takes; each names the message's whole memory. Work is put on the caller's stream behind what
// is there; nothing is waited for, and what is named must stay until the stream has got there.
//
// Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/plane_code.h"
#include "gpu/device.h"
#include "gpu/launch_plan.h"
#include "packetize/packet_plan.h"

namespace spillway::gpu {

// Rows of a message.
struct RowSlice {
  std::size_t first = 0;
  std::size_t count = 0;
};
inline RowSlice all_rows(const packetize::PacketPlan& plan) {
  return {0, plan.layout().row_count()};
}

// Values in the device's memory.
struct DeviceArray {
  DevicePointer values = 0;
  Element element = Element::kFloat32;
};

template <typename T>
T* device_memory(DevicePointer pointer) {
  return reinterpret_cast<T*>(static_cast<std::uintptr_t>(pointer));
}
// Of the three kernels from `first` on, that of the element.
inline Kernel kernel_for(Kernel first, Element element) {
  return static_cast<Kernel>(static_cast<unsigned>(first) + static_cast<unsigned>(element));
}
inline LaunchSize size_of(const Launch& launch) {
  return {launch.blocks, launch.threads, launch.shared_bytes};
}

// A coded message there.
struct DeviceMessage {
  DevicePointer payload = 0;   // packetize::plane_memory_bytes(plan)
  DevicePointer rows = 0;      // a RowCode for each row
  DevicePointer received = 0;  // 16 bits for each packet: bytes of its planes; none: all came
};

class PlaneCoder {
 public:
  static base::Result<PlaneCoder> make(DeviceHandle device);

  const DeviceHandle& device() const { return device_; }

  // `key` is packetize::rotation_key() of the message. `factors`: floats that the values of each
  // row are multiplied by; none: by nothing.
  base::Status encode(const packetize::PacketPlan& plan, std::uint64_t key, RowSlice rows,
                      const DeviceArray& tensor, const DeviceMessage& message, Stream stream,
                      DevicePointer factors = 0) const;
  base::Status decode(const packetize::PacketPlan& plan, std::uint64_t key, RowSlice rows,
                      const DeviceMessage& message, codec::Estimate estimate, Store store,
                      const DeviceArray& tensor, Stream stream) const;
  // Values as floats, with what they are owed; none: nothing.
  base::Status widen(const DeviceArray& from, DevicePointer owed, DevicePointer to,
                     std::size_t count, Stream stream) const;
  // Floats become zeros where one of them is not finite. `found`: 4 bytes for the question.
  base::Status forget_unless_finite(DevicePointer values, std::size_t count, DevicePointer found,
                                    Stream stream) const;
  // One round of the rotation of floats, unnormalised: what the rotation alone costs.
  base::Status rotate(const codec::RowLayout& layout, std::uint64_t key, DevicePointer from,
                      DevicePointer to, Stream stream) const;

 private:
  PlaneCoder(DeviceHandle device, DeviceMemory tables)
      : device_(std::move(device)), tables_(std::move(tables)) {}

  DeviceHandle device_;
  DeviceMemory tables_;
};

}  // namespace spillway::gpu
