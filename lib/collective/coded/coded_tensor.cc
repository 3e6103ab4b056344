// SPDX-License-Identifier: Apache-2.0
#include "collective/coded/coded_tensor.h"

#include <array>

#include "collective/reduction.h"
#include "collective/tolerant/own_values.h"

namespace spillway::collective {

void TensorNumbers::own(std::size_t block, std::vector<float>& values) const {
  const Extent extent = grid.extent_of(block);
  const OwnValues own(operation, extent);
  values.assign(own.view().begin(), own.view().end());
  if (!residual.empty()) {
    add_values(residual.subspan(extent.first, extent.count), values);
  }
}

std::size_t TensorNumbers::round(std::size_t block, std::span<const float> values) {
  const Extent extent = grid.extent_of(block);
  const std::span<std::int32_t> to = std::span(numbers).subspan(extent.first, extent.count);
  return residual.empty()
             ? code.round_at_random(values, draws, static_cast<std::uint32_t>(block), to)
             : code.round_to_nearest(values, to);
}

// The residual becomes what this rank's numbers lack of its part; zero if that is not finite.
void TensorNumbers::prepare(std::size_t block, std::vector<float>& scratch) {
  if (is_rounded && residual.empty()) {
    return;
  }
  own(block, scratch);
  if (!is_rounded) {
    round(block, scratch);
  }
  if (residual.empty()) {
    return;
  }
  const Extent extent = grid.extent_of(block);
  std::array<float, BlockGrid::kMostValues> rounded;
  code.values_of(std::span(numbers).subspan(extent.first, extent.count), 1.0, rounded);
  const std::span<float> owed = residual.subspan(extent.first, extent.count);
  for (std::size_t i = 0; i < extent.count; ++i) {
    owed[i] = is_finite ? scratch[i] - rounded[i] : 0.0F;
  }
}

void TensorNumbers::write(std::size_t block, std::span<const std::int32_t> sums) const {
  const Extent extent = grid.extent_of(block);
  const double weight = operation.op == ReduceOp::kAverage ? 1.0 / group.world : 1.0;
  std::array<float, BlockGrid::kMostValues> values;
  code.values_of(sums.subspan(extent.first, extent.count), weight, values);
  convert_from_float(
      operation.type, values.data(), extent.count,
      static_cast<std::uint8_t*>(operation.output) + extent.first * element_size(operation.type));
}

void TensorNumbers::owe(std::size_t index) {
  if (residual.empty() || !is_finite) {
    return;
  }
  float value = 0.0F;
  code.values_of(std::span(numbers).subspan(index, 1), 1.0, std::span(&value, 1));
  residual[index] += value;
}

}  // namespace spillway::collective
