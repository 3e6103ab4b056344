// SPDX-License-Identifier: Apache-2.0
//
// How a tensor is cut into rows. All rows have the chosen power-of-two length but the last, which
// is padded with zeros to the smallest power of two that holds it, at least 2^kMinRowLog2. A row is
// the unit of rotation and scale; a tensor of length 0 has no rows.
//
//   length 70,000, rows of 2^15:   [32768] [32768] [4464 values, padded to 8192]
//
// A pure value; both ends compute it from (length, row_log2).
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

}  // namespace spillway::codec
