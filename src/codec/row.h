// SPDX-License-Identifier: Apache-2.0
//
// A row: the run of a tensor that is rotated and scaled together. How a tensor is cut into rows,
// and what a decoder needs to know about a row besides its planes: a few bytes that every packet of
// the row carries, so that no packet depends on another.
//
// All rows have the chosen power-of-two length but the last, which is padded with zeros to the
// smallest power of two that holds it, at least 2^kMinRowLog2. A tensor of length 0 has no rows.
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
  std::size_t values;    // that belong to the tensor
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

// Special rows are told by the scale alone:
//   scale 0      an all-zero row (or one too small for a float scale): decodes to zeros
//   scale NaN    a row with a NaN or an infinity in it: decodes to NaN throughout, so that loss
//                scalers that look for non-finite gradients still find them
struct RowHeader {
  float scale = 0.0F;      // of one unit of the plane code
  unsigned rotations = 0;  // 1..kMaxRotations; 0 only where the scale is 0 or NaN
};

}  // namespace spillway::codec
