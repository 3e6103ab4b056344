// SPDX-License-Identifier: Apache-2.0
//
// A row is the run of a tensor that is rotated and scaled together. This file cuts tensors into
// rows. It also holds what a decoder needs besides planes: a few bytes in every packet of the row,
// so that no packet depends on another.
//
// All rows have the chosen power-of-two length except the last. It is padded with zeros to the
// smallest sufficient power of two, at least 2^kMinRowLog2. A tensor of length 0 has no rows.
//
//   length 70,000, rows of 2^15:   [32768] [32768] [4464 values, padded to 8192]
//
// Pure values; both ends compute the layout from (length, row_log2).
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/rotation.h"

namespace spillway::codec {

struct Row {
  std::size_t offset;    // of its first value in the tensor
  std::size_t values;    // number of values of the tensor
  unsigned log2_length;  // of the row with its padding

  std::size_t length() const { return std::size_t{1} << log2_length; }
  friend bool operator==(const Row&, const Row&) = default;
};

class RowLayout {
 public:
  // row_log2 must lie in [kMinRowLog2, kMaxRowLog2].
  RowLayout(std::size_t tensor_length, unsigned row_log2);

  std::size_t tensor_length() const { return tensor_length_; }
  unsigned row_log2() const { return row_log2_; }
  std::size_t row_count() const { return row_count_; }
  Row row(std::size_t index) const;

 private:
  std::size_t tensor_length_;
  unsigned row_log2_;
  std::size_t row_count_;
};

// Special rows have special scales:
//   scale 0      an all-zero row (or one too small for a float scale): decodes to zeros
//   scale NaN    a row that contains a NaN or an infinity: decodes to all NaN, so that loss scalers
//                that look for non-finite gradients still find them
struct RowHeader {
  float scale = 0.0F;      // of one unit of the plane code
  unsigned rotations = 0;  // 1..kMaxRotations; 0 only if the scale is 0 or NaN
};

}  // namespace spillway::codec
