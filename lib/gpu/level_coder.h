// SPDX-License-Identifier: Apache-2.0
//
// Rows in a GPU's memory to words of levels that can be added, and sums of such words back. The
// bits match codec/level_encoder.h, level_decoder.h and lanes.h. level_plan.h prepares the kernels'
// data for rows and chunks.
//
// Calls enqueue work on the caller's stream and do not wait. All memory passed in must stay valid
// until the stream has finished that work. Any thread.
#pragma once

#include <utility>

#include "collective/device_tensor.h"
#include "gpu/device.h"
#include "gpu/plane_coder.h"

namespace spillway::gpu {

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
