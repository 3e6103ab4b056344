// SPDX-License-Identifier: Apache-2.0
#include "codec/row_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "base/check.h"
#include "base/random.h"
#include "codec/plane_code.h"
#include "codec/rotation.h"

namespace spillway::codec {

// ------------------------------------------------------------------ rows of a tensor

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

// ------------------------------------------------------------------ is the rotated row Gaussian?

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

// ------------------------------------------------------------------ encoding

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

// ------------------------------------------------------------------ decoding

namespace {

// Long spans are decoded in pieces whose codes stay in the L1 cache.
constexpr std::size_t kPiece = 2048;
static_assert(kPiece % kPlaneBlock == 0);

constexpr std::size_t kBlockPlaneBytes = kPlaneBlock / 8;

using PieceCodes = std::array<std::array<std::uint8_t, kPiece>, kMaxPlanes / 8>;

// Complete planes, `stride` bytes apart.
struct PlaneSource {
  const std::uint8_t* bytes;
  std::size_t stride;
};

// Works in runs that the compiler unrolls: there is no vector instruction for this, and loop
// overhead would be half of the work. Span lengths are multiples of kSpanQuantum.
void look_up(const LevelTable& levels, const std::uint8_t* codes, std::size_t count,
             float* values) {
  constexpr std::size_t kRun = 16;
  static_assert(kSpanQuantum % kRun == 0);
  for (std::size_t first = 0; first < count; first += kRun) {
    for (std::size_t i = first; i < first + kRun; ++i) {
      values[i] = levels[codes[i]];
    }
  }
}

void values_of_codes(const Kernels& kernels, const PieceCodes& codes, std::size_t count,
                     unsigned planes, Estimate estimate, float* values) {
  if (planes <= kTablePlanes) {
    look_up(level_table(planes, estimate), codes[0].data(), count, values);
  } else if (planes <= kCompandedPlanes) {
    kernels.dequantise(codes[0].data(), codes[1].data(), count, planes, values);
  } else {
    kernels.dequantise_refined(codes[0].data(), codes[1].data(), codes[2].data(), codes[3].data(),
                               count, planes, values);
  }
}

void decode_piece(const Kernels& kernels, PlaneSource source, std::size_t count, unsigned planes,
                  Estimate estimate, float* values) {
  PieceCodes codes;
  const unsigned code_bytes = planes <= kTablePlanes ? 1 : planes <= kCompandedPlanes ? 2 : 4;
  for (unsigned byte = 0; byte < code_bytes; ++byte) {
    const unsigned first_plane = byte * 8;
    const unsigned present = planes > first_plane ? std::min(8U, planes - first_plane) : 0;
    kernels.merge_planes(source.bytes + first_plane * source.stride, source.stride, present, count,
                         codes[byte].data());
  }
  values_of_codes(kernels, codes, count, planes, estimate, values);
}

// Decodes coordinates [first, first + count), each with exactly `planes` planes.
void decode_run(const Kernels& kernels, PlaneSource source, std::size_t first, std::size_t count,
                unsigned planes, Estimate estimate, float* values) {
  if (planes == 0) {
    std::fill_n(values + first, count, 0.0F);
    return;
  }
  for (std::size_t done = 0; done < count; done += kPiece) {
    const std::size_t at = first + done;
    decode_piece(kernels, {source.bytes + at / 8, source.stride}, std::min(kPiece, count - done),
                 planes, estimate, values + at);
  }
}

// Decodes the one block inside which a plane ends after `extra_bytes` bytes: with and without that
// plane. Each coordinate takes the result that applies to it.
void decode_cut_block(const Kernels& kernels, PlaneSource source, std::size_t count,
                      unsigned whole_planes, std::size_t extra_bytes, Estimate estimate,
                      float* values) {
  const std::size_t stride = count / 8;
  std::array<std::uint8_t, kMaxPlanes * kBlockPlaneBytes> padded{};
  for (unsigned plane = 0; plane <= whole_planes; ++plane) {
    std::copy_n(source.bytes + plane * source.stride, plane < whole_planes ? stride : extra_bytes,
                padded.data() + plane * stride);
  }
  std::array<float, kPlaneBlock> without;
  decode_run(kernels, {padded.data(), stride}, 0, count, whole_planes, estimate, without.data());
  decode_run(kernels, {padded.data(), stride}, 0, count, whole_planes + 1, estimate, values);
  for (std::size_t i = 0; i < count; ++i) {
    if (i % stride >= extra_bytes) {
      values[i] = without[i];
    }
  }
}

}  // namespace

PlanePrefix plane_prefix(const PlaneSpan& span) {
  const std::size_t plane_bytes = span.count / 8;
  const std::size_t usable = std::min(span.bytes.size(), plane_bytes * span.planes);
  return {static_cast<unsigned>(usable / plane_bytes), usable % plane_bytes};
}

std::size_t decode_planes(const Kernels& kernels, const PlaneSpan& span, Estimate estimate,
                          float* values) {
  SPILLWAY_CHECK(span.count > 0 && span.count % kSpanQuantum == 0);
  SPILLWAY_CHECK(span.planes >= 1 && span.planes <= kMaxPlanes);
  const PlaneSource source{span.bytes.data(), span.count / 8};
  const auto [planes, extra_bytes] = plane_prefix(span);

  const std::size_t longer = extra_bytes / kBlockPlaneBytes * kPlaneBlock;
  const std::size_t cut_bytes = extra_bytes % kBlockPlaneBytes;
  const std::size_t cut = cut_bytes == 0 ? 0 : std::min(kPlaneBlock, span.count - longer);
  if (longer > 0) {
    decode_run(kernels, source, 0, longer, planes + 1, estimate, values);
  }
  if (cut > 0) {
    decode_cut_block(kernels, {source.bytes + longer / 8, source.stride}, cut, planes, cut_bytes,
                     estimate, values + longer);
  }
  decode_run(kernels, source, longer + cut, span.count - longer - cut, planes, estimate, values);
  return planes > 0 ? span.count : extra_bytes * 8;
}

void finish_row(const Kernels& kernels, const RowHeader& header, RotationId rotation,
                unsigned log2_length, std::size_t arrived, Estimate estimate, float* row) {
  const std::size_t length = std::size_t{1} << log2_length;
  SPILLWAY_CHECK(arrived <= length);
  if (arrived == 0 || header.scale == 0.0F || std::isnan(header.scale)) {
    std::fill_n(row, length, arrived == 0 ? 0.0F : header.scale);
    return;
  }
  SPILLWAY_CHECK(header.rotations >= 1 && header.rotations <= kMaxRotations);
  double factor = header.scale;
  if (estimate == Estimate::kUnbiased) {
    factor *= static_cast<double>(length) / static_cast<double>(arrived);
  }
  unrotate_row(kernels, rotation, header.rotations, log2_length, static_cast<float>(factor), row);
}

}  // namespace spillway::codec
