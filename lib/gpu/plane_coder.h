// SPDX-License-Identifier: Apache-2.0
//
// Tensors in a GPU's memory to the planes of their packets and back. The bits match
// packetize::Packetizer and Depacketizer; codec/kernels.h says why that is possible.
//
// The payload's layout is that of shape_of() (launch_plan.h). Rows may be coded in slices, each
// with as many launches as it needs; every slice names the whole message's memory. Calls enqueue
// work on the caller's stream and do not wait. All memory passed in must stay valid until the
// stream has finished that work.
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

// A range of a message's rows.
struct RowSlice {
  std::size_t first = 0;
  std::size_t count = 0;
};
inline RowSlice all_rows(const packetize::PacketPlan& plan) {
  return {0, plan.layout().row_count()};
}

// Values in device memory.
struct DeviceArray {
  DevicePointer values = 0;
  Element element = Element::kFloat32;
};

template <typename T>
T* device_memory(DevicePointer pointer) {
  return reinterpret_cast<T*>(static_cast<std::uintptr_t>(pointer));
}
// The kernel for the element type; the three variants start at `first`.
inline Kernel kernel_for(Kernel first, Element element) {
  return static_cast<Kernel>(static_cast<unsigned>(first) + static_cast<unsigned>(element));
}
inline LaunchSize size_of(const Launch& launch) {
  return {launch.blocks, launch.threads, launch.shared_bytes};
}

// A coded message in device memory.
struct DeviceMessage {
  DevicePointer payload = 0;   // packetize::plane_memory_bytes(plan)
  DevicePointer rows = 0;      // a RowCode for each row
  DevicePointer received = 0;  // 16 bits per packet: bytes of its planes; 0: all arrived
};

class PlaneCoder {
 public:
  static base::Result<PlaneCoder> make(DeviceHandle device);

  const DeviceHandle& device() const { return device_; }

  // `key` is packetize::rotation_key() of the message. `factors` holds a float per row that its
  // values are multiplied by; 0: no scaling.
  base::Status encode(const packetize::PacketPlan& plan, std::uint64_t key, RowSlice rows,
                      const DeviceArray& tensor, const DeviceMessage& message, Stream stream,
                      DevicePointer factors = 0) const;
  base::Status decode(const packetize::PacketPlan& plan, std::uint64_t key, RowSlice rows,
                      const DeviceMessage& message, codec::Estimate estimate, Store store,
                      const DeviceArray& tensor, Stream stream) const;
  // Converts values to floats and adds their residuals; `owed` 0: no residuals.
  base::Status widen(const DeviceArray& from, DevicePointer owed, DevicePointer to,
                     std::size_t count, Stream stream) const;
  // Zeroes all floats if one of them is not finite. `found` is 4 bytes of scratch memory.
  base::Status forget_unless_finite(DevicePointer values, std::size_t count, DevicePointer found,
                                    Stream stream) const;
  // One unnormalised rotation round on floats; measures what the rotation alone costs.
  base::Status rotate(const codec::RowLayout& layout, std::uint64_t key, DevicePointer from,
                      DevicePointer to, Stream stream) const;

 private:
  PlaneCoder(DeviceHandle device, DeviceMemory tables)
      : device_(std::move(device)), tables_(std::move(tables)) {}

  DeviceHandle device_;
  DeviceMemory tables_;
};

}  // namespace spillway::gpu
