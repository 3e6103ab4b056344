// SPDX-License-Identifier: Apache-2.0
#include "codec/row_decoder.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"

namespace spillway::codec {
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
