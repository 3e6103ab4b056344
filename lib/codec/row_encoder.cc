// SPDX-License-Identifier: Apache-2.0
#include "codec/row_encoder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "base/check.h"
#include "base/random.h"
#include "codec/extreme_values.h"
#include "codec/plane_code.h"

namespace spillway::codec {
namespace {

constexpr std::size_t kMinSample = 256;
constexpr std::size_t kMaxSample = 4096;
// Cells from here on are too rare to be tested one by one and are merged.
constexpr unsigned kOuterCell = 112;
constexpr unsigned kCells = kOuterCell + 1;
// Chi-square with k degrees of freedom has mean k and deviation sqrt(2k). Eight deviations leave
// room for the tail of its skewed distribution.
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

// The last entry stands for all outer cells together.
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

// True if a rotated row looks like Gaussian draws; the plane code is unbiased for such rows.
//
// Others are rare but real: a constant row, a row of some hundred equal values, a single non-zero
// padded to 256. Their rotated coordinates form a lattice, and its position within the cells can
// bias a short prefix by a few percent. Such a row passes after one more round.
//
// The test is Pearson's chi-square over the 8-plane magnitude cells of a sample of the row's
// coordinates, which are exchangeable. A lattice that is coarse enough to matter empties or crowds
// cells and fails. The threshold is eight deviations out. If a Gaussian row fails, it costs only a
// round. The test counts codes, so every CPU decides alike.
//
// `high_codes` holds the first eight planes of each coordinate of a row (see plane_code.h).
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

// A fallback scale keeps the largest magnitude just inside the code's range.
constexpr double kWidenedMagnitude = 0.999 * kMaxMagnitude;
constexpr std::uint32_t kJitterDomain = 0x4A495454U;  // "JITT"

// A factor within 1/64 of 1, drawn for every rotation. Rows that need the last round are tiny and
// fall on a fine lattice with points exactly on cell bounds. Moving the bounds slightly from
// message to message keeps such ties from always falling to the same side.
double jitter(RotationId rotation) {
  const base::RandomBlock block =
      base::random_block(rotation.key, {rotation.row, 0, 0, kJitterDomain});
  return 1.0 + (static_cast<double>(base::uniform_float(block[0])) - 0.5) / 32.0;
}

}  // namespace

RowEncoder::RowEncoder(const Kernels& kernels) : kernels_(kernels), row_(kMaxRowLength) {
  for (auto& codes : codes_) {
    codes.resize(kMaxRowLength);
  }
}

RowHeader RowEncoder::special_row(float scale, std::size_t length, unsigned planes) {
  for (unsigned byte = 0; byte < (planes + 7) / 8; ++byte) {
    std::fill_n(codes_[byte].begin(), length, std::uint8_t{0});
  }
  return {scale, 0};
}

RowHeader RowEncoder::encode(std::span<const float> values, unsigned log2_length,
                             RotationId rotation, unsigned planes) {
  SPILLWAY_CHECK(log2_length >= kMinRowLog2 && log2_length <= kMaxRowLog2);
  SPILLWAY_CHECK(planes >= 1 && planes <= kMaxPlanes);
  const std::size_t length = std::size_t{1} << log2_length;
  SPILLWAY_CHECK(values.size() <= length);

  const float* source = values.data();
  if (values.size() < length) {
    source = pad(values, length);
  }
  RowMoments moments = rotate_first(kernels_, rotation, log2_length, source, row_.data());
  int exponent = 0;
  if (!is_safe_energy(moments.sum_squares)) [[unlikely]] {
    if (!all_finite(values)) {
      return special_row(std::numeric_limits<float>::quiet_NaN(), length, planes);
    }
    const float largest = max_abs(values);
    if (largest == 0.0F) {
      return special_row(0.0F, length, planes);
    }
    exponent = std::ilogb(largest);
    pad(values, length);
    scale_by_power_of_two(std::span(row_).first(values.size()), -exponent);
    moments = rotate_first(kernels_, rotation, log2_length, row_.data(), row_.data());
  }
  const bool spiky = moments.max_square > kMaxEnergyShare * moments.sum_squares;
  RowHeader header{.scale = 0.0F, .rotations = 1};
  if (spiky) {
    rotate_row(kernels_, rotation, 1, 1, log2_length, row_.data());
    header.rotations = 2;
  }
  const double rms =
      std::sqrt(static_cast<double>(moments.sum_squares) / static_cast<double>(length));
  const float inverse_scale = quantise_row(log2_length, rotation, rms, header);
  if (planes > kCompandedPlanes) {
    kernels_.refine(row_.data(), length, inverse_scale, codes_[0].data(), codes_[1].data(),
                    codes_[2].data(), codes_[3].data());
  }
  // Back to the row's original magnitude, which may overflow or underflow a float.
  const double scale = std::ldexp(static_cast<double>(header.scale), exponent);
  header.scale = static_cast<float>(std::min<double>(scale, std::numeric_limits<float>::max()));
  return header.scale > 0.0F ? header : special_row(0.0F, length, planes);
}

const float* RowEncoder::pad(std::span<const float> values, std::size_t length) {
  std::copy(values.begin(), values.end(), row_.begin());
  std::fill(row_.begin() + static_cast<std::ptrdiff_t>(values.size()),
            row_.begin() + static_cast<std::ptrdiff_t>(length), 0.0F);
  return row_.data();
}

// Codes the rotated row and fills in the header's scale. If the row does not look Gaussian, or a
// coordinate is outside the code's range, it is rotated once more. After the last round the scale
// is widened instead, so that the code always fits.
float RowEncoder::quantise_row(unsigned log2_length, RotationId rotation, double rms,
                               RowHeader& header) {
  const std::size_t length = std::size_t{1} << log2_length;
  double scale = rms;
  for (;;) {
    header.scale = static_cast<float>(scale);
    const auto inverse_scale =
        static_cast<float>(1.0 / (scale * rotation_gain(log2_length, header.rotations)));
    const float peak =
        kernels_.quantise(row_.data(), length, inverse_scale, codes_[0].data(), codes_[1].data());
    const bool in_range = peak < kMaxMagnitude;
    if (header.rotations < kMaxRotations) {
      if (in_range && looks_gaussian({codes_[0].data(), length})) {
        return inverse_scale;
      }
      rotate_row(kernels_, rotation, header.rotations, 1, log2_length, row_.data());
      ++header.rotations;
      scale = header.rotations == kMaxRotations ? rms * jitter(rotation) : rms;
    } else if (in_range) {
      return inverse_scale;
    } else {
      scale *= static_cast<double>(peak) / kWidenedMagnitude;
    }
  }
}

void RowEncoder::write_planes(std::size_t first, std::size_t count, unsigned planes,
                              std::uint8_t* out) const {
  SPILLWAY_CHECK(first % kSpanQuantum == 0 && count % kSpanQuantum == 0);
  SPILLWAY_CHECK(first + count <= kMaxRowLength && planes >= 1 && planes <= kMaxPlanes);
  const std::size_t plane_bytes = count / 8;
  for (unsigned plane = 0; plane < planes; plane += 8) {
    kernels_.split_planes(codes_[plane / 8].data() + first, count, std::min(8U, planes - plane),
                          out + plane * plane_bytes, plane_bytes);
  }
}

}  // namespace spillway::codec
