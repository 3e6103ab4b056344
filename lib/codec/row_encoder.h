// SPDX-License-Identifier: Apache-2.0
//
// One row to planes: rotate, scale, quantise, split.
//
// The encoder measures the row and rotates it once, or more often if it is spiky or still does not
// look Gaussian. It codes each coordinate in units of the row's root mean square. The result
// depends only on the values, the rotation and the precision, never on the CPU.
//
// A RowEncoder allocates scratch memory for one row (about 256 KiB) once. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/kernels.h"
#include "codec/plane_code.h"
#include "codec/rotation.h"
#include "codec/row.h"

namespace spillway::codec {

class RowEncoder {
 public:
  explicit RowEncoder(const Kernels& kernels = best_kernels());

  // Encodes `values` (at most 2^log2_length, padded with zeros) with `planes` planes. The codes
  // stay here until the next call.
  RowHeader encode(std::span<const float> values, unsigned log2_length, RotationId rotation,
                   unsigned planes);

  // Writes coordinates [first, first + count) of the encoded row as `planes` planes of count / 8
  // bytes each, most significant first. `first` and `count` are multiples of kSpanQuantum.
  void write_planes(std::size_t first, std::size_t count, unsigned planes, std::uint8_t* out) const;

 private:
  // Copies the values into row_ and appends zeros.
  const float* pad(std::span<const float> values, std::size_t length);
  RowHeader special_row(float scale, std::size_t length, unsigned planes);
  float quantise_row(unsigned log2_length, RotationId rotation, double rms, RowHeader& header);

  const Kernels& kernels_;
  std::vector<float> row_;
  // Byte k of each coordinate's code holds planes 8k .. 8k+7.
  std::array<std::vector<std::uint8_t>, kMaxPlanes / 8> codes_;
};

}  // namespace spillway::codec
