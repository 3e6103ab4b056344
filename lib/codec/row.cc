// SPDX-License-Identifier: Apache-2.0
#include "codec/row.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace spillway::codec {

RowLayout::RowLayout(std::size_t tensor_length, unsigned row_log2)
    : tensor_length_(tensor_length), row_log2_(row_log2) {
  SPILLWAY_CHECK(row_log2 >= kMinRowLog2 && row_log2 <= kMaxRowLog2);
  const std::size_t full = std::size_t{1} << row_log2;
  row_count_ = tensor_length / full + (tensor_length % full != 0 ? 1 : 0);
}

Row RowLayout::row(std::size_t index) const {
  SPILLWAY_CHECK(index < row_count_);
  const std::size_t full = std::size_t{1} << row_log2_;
  const std::size_t offset = index * full;
  const std::size_t values = std::min(full, tensor_length_ - offset);
  const std::size_t padded = std::max(std::bit_ceil(values), std::size_t{1} << kMinRowLog2);
  return {offset, values, static_cast<unsigned>(std::countr_zero(padded))};
}

}  // namespace spillway::codec
