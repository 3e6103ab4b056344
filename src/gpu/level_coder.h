// SPDX-License-Identifier: Apache-2.0
//
// Rows in a GPU's memory to words of levels that can be added, and sums of such words back: the
// bits those of codec/level_encoder.h, level_decoder.h and lanes.h. level_plan.h says what kernels
// are told of rows and chunks.
//
// Work is put on the caller's stream behind what is there; nothing is waited for, and what is named
// must stay until the stream has got there. Any thread.
#pragma once

#include <utility>

#include "collective/device_tensor.h"
#include "gpu/device.h"
#include "gpu/plane_coder.h"

namespace spillway::gpu {

class LevelCoder {
 public:
  explicit LevelCoder(DeviceHandle device) : device_(std::move(device)) {}

  // `measures`: a RowMeasure for each row.
  base::Status measure(const collective::DeviceLevels& levels, const DeviceArray& values,
                       DevicePointer measures, Stream stream) const;
  // `rows`: a LevelRow each; `numbers`: room for 16 bits for each coordinate; `clipped`: a number
  // that is added to; `words`: as many as words_of() says.
  base::Status round(const collective::DeviceLevels& levels, const DeviceArray& values,
                     DevicePointer rows, DevicePointer numbers, DevicePointer clipped,
                     DevicePointer words, Stream stream) const;
  // `chunks`: a ChunkShare each.
  base::Status decode(const collective::DeviceLevels& levels, DevicePointer words,
                      DevicePointer chunks, DevicePointer rows, Store store,
                      const DeviceArray& values, Stream stream) const;

 private:
  DeviceHandle device_;
};

}  // namespace spillway::gpu
