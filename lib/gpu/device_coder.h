// SPDX-License-Identifier: Apache-2.0
//
// Tensors in a GPU's memory to packets' planes or words of levels, and back: the launches of a
// message, and the two coders that enqueue them. The bits match the codec's. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "codec/plane_code.h"
#include "collective/device_tensor.h"
#include "gpu/device.h"
#include "gpu/kernels/arguments.h"
#include "packetize/packet_plan.h"

namespace spillway::gpu {

// ------------------------------------------------------------------ launches
//
// A message as kernel launches: how its planes lie in memory, and which blocks work on which rows.
// All full rows of a range form one launch; a last row of another length needs a second one.
//
// A block holds a tile in shared memory: one row, or several short rows that together have
// 2^kMinTileLog2 coordinates. Each thread handles 32 of them. Rows of 2^13 need 40 KB of shared
// memory, which every device has. Rows of 2^15 need 150 KB, which some lack; Device::launch() then
// fails.

inline constexpr unsigned kMinTileLog2 = 12;
inline constexpr unsigned kMaxThreads = 1024;

struct Launch {
  RowRange rows;
  unsigned blocks;
  unsigned threads;
  unsigned shared_bytes;
};

MessageShape shape_of(const packetize::PacketPlan& plan);

// Launches for rows [first, first + count) of a layout; empty if `count` is 0.
std::vector<Launch> launches_of(const codec::RowLayout& layout, std::size_t first,
                                std::size_t count);

// Tables of the codec that the kernels read.
CodeTables make_code_tables();

// Parameters of the levels kernels for rows and chunks. The host computes them with the codec's
// arithmetic, because they are few.

// Coordinates of all rows, padding included, and words of their chunks.
std::size_t coordinates_of(const codec::RowLayout& rows);
std::size_t words_of(const collective::DeviceLevels& levels);

inline Lanes lanes_of(const codec::LaneLayout& lanes) {
  return {lanes.bits, lanes.lanes};
}

// Rounding parameters of each row.
std::vector<LevelRow> rounded_rows(const collective::DeviceLevels& levels,
                                   std::span<const codec::RotatedRow> rows,
                                   std::span<const float> scales);

// Decoding parameters of each row of sums. Rows marked in `cleared` (may be empty) become zero,
// whatever their sums.
std::vector<LevelRow> decoded_rows(const collective::DeviceLevels& levels,
                                   const collective::DeviceLevelSums& sums,
                                   const std::vector<bool>& cleared);

std::vector<ChunkShare> chunk_shares(const collective::DeviceLevels& levels,
                                     const collective::DeviceLevelSums& sums);

// ------------------------------------------------------------------ planes
//
// Tensors in a GPU's memory to the planes of their packets and back. The bits match
// packetize::Packetizer and Depacketizer; codec/kernels.h says why that is possible.
//
// The payload's layout is that of shape_of(). Rows may be coded in slices, each
// with as many launches as it needs; every slice names the whole message's memory. Calls enqueue
// work on the caller's stream and do not wait. All memory passed in must stay valid until the
// stream has finished that work.

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
  // Converts values to floats and adds their residuals; `residual` 0: no residuals.
  base::Status widen(const DeviceArray& from, DevicePointer residual, DevicePointer to,
                     std::size_t count, Stream stream) const;
  // Zeroes all floats if one of them is not finite. `found` is 4 bytes of scratch memory.
  base::Status clear_unless_finite(DevicePointer values, std::size_t count, DevicePointer found,
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

// ------------------------------------------------------------------ levels
//
// Rows in a GPU's memory to words of levels that can be added, and sums of such words back. The
// bits match codec/level_code.h and lanes.h. rounded_rows(), decoded_rows() and chunk_shares()
// prepare the kernels' data.
//
// Calls enqueue work on the caller's stream and do not wait. All memory passed in must stay valid
// until the stream has finished that work.

class LevelCoder {
 public:
  explicit LevelCoder(DeviceHandle device) : device_(std::move(device)) {}

  // `measures` receives a RowMeasure per row.
  base::Status measure(const collective::DeviceLevels& levels, const DeviceArray& values,
                       DevicePointer measures, Stream stream) const;
  // `rows` holds a LevelRow per row; `numbers` has 16 bits of space per coordinate. The number of
  // clipped values is added to `clipped`. `words` has the length given by words_of().
  base::Status round(const collective::DeviceLevels& levels, const DeviceArray& values,
                     DevicePointer rows, DevicePointer numbers, DevicePointer clipped,
                     DevicePointer words, Stream stream) const;
  // `chunks` holds a ChunkShare per chunk.
  base::Status decode(const collective::DeviceLevels& levels, DevicePointer words,
                      DevicePointer chunks, DevicePointer rows, Store store,
                      const DeviceArray& values, Stream stream) const;

 private:
  DeviceHandle device_;
};

}  // namespace spillway::gpu
