// SPDX-License-Identifier: Apache-2.0
#include "codec/goodness.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "codec/plane_code.h"

namespace spillway::codec {
namespace {

constexpr std::size_t kMinSample = 256;
constexpr std::size_t kMaxSample = 4096;
// Cells from here on are too thin to be counted one by one and are taken together.
constexpr unsigned kOuterCell = 112;
constexpr unsigned kCells = kOuterCell + 1;
// Chi-square with k degrees of freedom has mean k and deviation sqrt(2k); eight deviations leave
// room for the tail of a skewed distribution.
constexpr double kDeviations = 8.0;

using CellCounts = std::array<std::uint32_t, 128>;

CellCounts count_cells(std::span<const std::uint8_t> codes) {
  // Two tables, so that neighbours in the same cell do not wait for each other's increment.
  CellCounts even{};
  CellCounts odd{};
  for (std::size_t i = 0; i + 2 <= codes.size(); i += 2) {
    ++even[codes[i] & 0x7FU];
    ++odd[codes[i + 1] & 0x7FU];
  }
  for (unsigned cell = 0; cell < even.size(); ++cell) {
    even[cell] += odd[cell];
  }
  return even;
}

struct CellModel {
  double mass;
  double inverse_mass;
};

// The outermost entry stands for all outer cells together.
std::array<CellModel, kCells> make_model() {
  std::array<CellModel, kCells> model{};
  double outer = 1.0;
  for (unsigned cell = 0; cell < kOuterCell; ++cell) {
    const double mass = magnitude_cell_mass(cell);
    model[cell] = {mass, 1.0 / mass};
    outer -= mass;
  }
  model[kOuterCell] = {outer, 1.0 / outer};
  return model;
}

}  // namespace

bool looks_gaussian(std::span<const std::uint8_t> high_codes) {
  const std::size_t sample =
      std::min(high_codes.size(), std::clamp(high_codes.size() / 8, kMinSample, kMaxSample));
  const CellCounts counts = count_cells(high_codes.first(sample));
  static const std::array<CellModel, kCells> model = make_model();
  const auto size = static_cast<double>(sample);
  double weighted_squares = 0.0;
  const auto add = [&](const CellModel& cell, double observed) {
    const double difference = observed - cell.mass * size;
    weighted_squares += difference * difference * cell.inverse_mass;
  };
  double outer_count = size;
  for (unsigned cell = 0; cell < kOuterCell; ++cell) {
    add(model[cell], counts[cell]);
    outer_count -= counts[cell];
  }
  add(model[kOuterCell], outer_count);
  constexpr double kFreedom = kCells - 1;
  static const double threshold = kFreedom + kDeviations * std::sqrt(2.0 * kFreedom);
  return weighted_squares <= threshold * size;
}

}  // namespace spillway::codec
