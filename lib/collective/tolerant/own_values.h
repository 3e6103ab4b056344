// SPDX-License-Identifier: Apache-2.0
//
// The caller's elements of a piece as floats: in place if they are aligned floats, else converted.
// Lives as long as a calculation; the caller's memory outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collective/operation.h"
#include "collective/reduction.h"
#include "collective/shards.h"

namespace spillway::collective {

class OwnValues {
 public:
  OwnValues(const Operation& operation, const Extent& extent) {
    const auto* const elements = static_cast<const std::uint8_t*>(operation.input) +
                                 extent.first * element_size(operation.type);
    const bool is_aligned = reinterpret_cast<std::uintptr_t>(elements) % alignof(float) == 0;
    if (operation.type == DataType::kFloat32 && is_aligned) {
      view_ = {reinterpret_cast<const float*>(elements), extent.count};
      return;
    }
    converted_.resize(extent.count);
    convert_to_float(operation.type, elements, extent.count, converted_.data());
    view_ = converted_;
  }
  OwnValues(const OwnValues&) = delete;
  OwnValues& operator=(const OwnValues&) = delete;

  std::span<const float> view() const { return view_; }

 private:
  std::vector<float> converted_;
  std::span<const float> view_;
};

// Adds each value of `part` to its counterpart in `sum`.
inline void add_values(std::span<const float> part, std::span<float> sum) {
  for (std::size_t i = 0; i < sum.size(); ++i) {
    sum[i] += part[i];
  }
}

}  // namespace spillway::collective
