// SPDX-License-Identifier: Apache-2.0
#include "codec/kernels.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/environment.h"

namespace spillway::codec {

// ------------------------------------------------------------------ the scalar table: the oracle
//
// Each kernel in its plainest form. Faster tables must match it bit for bit.

namespace {

float flip_sign(float value, const std::uint32_t* sign_words, std::size_t index) {
  const std::uint32_t sign = (sign_words[index / 32] >> (index % 32)) << 31;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ sign);
}

void hadamard(float* row, unsigned log2_length) {
  const std::size_t length = std::size_t{1} << log2_length;
  for (std::size_t half = 1; half < length; half *= 2) {
    for (std::size_t base = 0; base < length; base += 2 * half) {
      for (std::size_t i = base; i < base + half; ++i) {
        const float a = row[i];
        const float b = row[i + half];
        row[i] = a + b;
        row[i + half] = a - b;
      }
    }
  }
}

void rotate(float* row, unsigned log2_length, const std::uint32_t* sign_words) {
  const std::size_t length = std::size_t{1} << log2_length;
  for (std::size_t i = 0; i < length; ++i) {
    row[i] = flip_sign(row[i], sign_words, i);
  }
  hadamard(row, log2_length);
}

RowMoments measure_and_rotate(const float* source, float* row, unsigned log2_length,
                              const std::uint32_t* sign_words) {
  const std::size_t length = std::size_t{1} << log2_length;
  std::array<float, kAccumulators> sums{};
  float largest = 0.0F;
  for (std::size_t i = 0; i < length; ++i) {
    const float square = source[i] * source[i];
    sums[i % kAccumulators] += square;
    largest = std::max(largest, square);
    row[i] = source[i];
  }
  rotate(row, log2_length, sign_words);
  return {combine_lanes(sums), largest};
}

void unrotate(float* row, unsigned log2_length, const std::uint32_t* sign_words, float factor) {
  const std::size_t length = std::size_t{1} << log2_length;
  hadamard(row, log2_length);
  for (std::size_t i = 0; i < length; ++i) {
    row[i] = flip_sign(row[i] * factor, sign_words, i);
  }
}

std::uint32_t magnitude_code(float absolute, const ScaledCompander& compander) {
  float code = absolute * compander.inner_slope;
  for (unsigned i = 0; i < kInnerLines - 1; ++i) {
    code = std::fma(std::min(absolute, compander.bend_at[i]), compander.bend[i], code);
  }
  for (unsigned i = kInnerLines; i < kCompanderLines; ++i) {
    code = std::min(code, std::fma(absolute, compander.outer_slope[i - kInnerLines],
                                   kCompander[i].code_offset));
  }
  return static_cast<std::uint32_t>(std::min(code, kMaxCode));
}

const CompanderLine& line_of(float code) {
  const CompanderLine* found = kCompander.data();
  for (const CompanderLine& line : kCompander) {
    found = code >= line.first_code ? &line : found;
  }
  return *found;
}

float magnitude_of(float code) {
  float magnitude = 0.0F;
  for (const CompanderLine& line : kCompander) {
    magnitude = std::max(magnitude, code * line.unit_per_code + line.unit_offset);
  }
  return magnitude;
}

float with_sign_of(std::uint32_t code16, float magnitude) {
  return (code16 & 0x8000U) != 0 ? -magnitude : magnitude;
}

float quantise(const float* row, std::size_t count, float inverse_scale, std::uint8_t* high,
               std::uint8_t* low) {
  const ScaledCompander compander(inverse_scale);
  float peak = 0.0F;
  for (std::size_t i = 0; i < count; ++i) {
    const float absolute = std::fabs(row[i]);
    peak = std::max(peak, absolute);
    const std::uint32_t code = magnitude_code(absolute, compander) |
                               ((std::bit_cast<std::uint32_t>(row[i]) >> 16) & 0x8000U);
    high[i] = static_cast<std::uint8_t>(code >> 8);
    low[i] = static_cast<std::uint8_t>(code);
  }
  return peak * inverse_scale;
}

void refine(const float* row, std::size_t count, float inverse_scale, const std::uint8_t* high,
            const std::uint8_t* low, std::uint8_t* third, std::uint8_t* fourth) {
  for (std::size_t i = 0; i < count; ++i) {
    const float code = static_cast<float>((high[i] & 0x7F) << 8 | low[i]);
    const CompanderLine& line = line_of(code);
    const float bound = code * line.unit_per_code + line.unit_offset;  // exact
    const float inside = (std::fabs(row[i]) * inverse_scale - bound) * line.code_per_unit;
    const float clamped = std::clamp(inside * 65536.0F, 0.0F, 65535.0F);
    const auto code16 = static_cast<std::uint32_t>(clamped);
    third[i] = static_cast<std::uint8_t>(code16 >> 8);
    fourth[i] = static_cast<std::uint8_t>(code16);
  }
}

void split_planes(const std::uint8_t* codes, std::size_t count, unsigned wanted,
                  std::uint8_t* planes, std::size_t plane_stride) {
  for (std::size_t block = 0; block < count; block += kPlaneBlock) {
    const std::size_t stride = std::min(kPlaneBlock, count - block) / 8;
    for (unsigned plane = 0; plane < wanted; ++plane) {
      for (std::size_t i = 0; i < stride; ++i) {
        unsigned byte = 0;
        for (unsigned k = 0; k < 8; ++k) {
          byte |= ((codes[block + k * stride + i] >> (7 - plane)) & 1U) << k;
        }
        planes[plane * plane_stride + block / 8 + i] = static_cast<std::uint8_t>(byte);
      }
    }
  }
}

void merge_planes(const std::uint8_t* planes, std::size_t plane_stride, unsigned present,
                  std::size_t count, std::uint8_t* codes) {
  std::memset(codes, 0, count);
  for (std::size_t block = 0; block < count; block += kPlaneBlock) {
    const std::size_t stride = std::min(kPlaneBlock, count - block) / 8;
    for (unsigned plane = 0; plane < present; ++plane) {
      for (std::size_t i = 0; i < stride; ++i) {
        const unsigned byte = planes[plane * plane_stride + block / 8 + i];
        for (unsigned k = 0; k < 8; ++k) {
          codes[block + k * stride + i] |=
              static_cast<std::uint8_t>(((byte >> k) & 1U) << (7 - plane));
        }
      }
    }
  }
}

void dequantise(const std::uint8_t* high, const std::uint8_t* low, std::size_t count,
                unsigned planes, float* values) {
  const float half_cell = 0.5F * static_cast<float>(1U << (kCompandedPlanes - planes));
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t code = static_cast<std::uint32_t>(high[i]) << 8 | low[i];
    values[i] = with_sign_of(code, magnitude_of(static_cast<float>(code & 0x7FFFU) + half_cell));
  }
}

void dequantise_refined(const std::uint8_t* high, const std::uint8_t* low,
                        const std::uint8_t* third, const std::uint8_t* fourth, std::size_t count,
                        unsigned planes, float* values) {
  const float half_cell = 0.5F * static_cast<float>(1U << (kMaxPlanes - planes));
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t code = static_cast<std::uint32_t>(high[i]) << 8 | low[i];
    const auto whole = static_cast<float>(code & 0x7FFFU);
    const float inside = static_cast<float>(third[i] << 8 | fourth[i]) + half_cell;
    const CompanderLine& line = line_of(whole);
    const float bound = whole * line.unit_per_code + line.unit_offset;  // exact
    const float offset = inside * line.unit_per_code;                   // exact, then rounded once
    values[i] = with_sign_of(code, bound + offset * (1.0F / 65536.0F));
  }
}

void draw_words(std::uint64_t key, base::RandomBlock counter, std::size_t count,
                std::uint32_t* words) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto block =
        static_cast<std::uint32_t>(i / kDrawWords * kDrawCounters + i % kDrawCounters);
    const std::size_t word = i % kDrawWords / kDrawCounters;
    words[i] =
        base::random_block(key, {counter[0] + block, counter[1], counter[2], counter[3]})[word];
  }
}

std::size_t round_levels(const float* row, std::size_t count, float factor, float range,
                         const std::uint32_t* cells, const std::uint32_t* dither,
                         std::uint32_t* levels) {
  std::size_t clamped = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const float x = std::fma(row[i], factor, range * 0.5F);
    clamped += x < 0.0F || x > range ? 1 : 0;
    const float inside = std::min(std::max(x, 0.0F), range);
    const auto floor = static_cast<std::uint32_t>(inside);
    const std::uint32_t cell = cells != nullptr ? cells[floor] : 1U << 16 | floor;
    const std::uint32_t level = cell & 0xFFFFU;
    const std::uint32_t distance = cell >> 16;
    const std::uint32_t draw = dither[i / 16 * 8 + i % 8] >> (i % 16 / 8 * 16) & 0xFFFFU;
    const float share = (static_cast<float>(draw) + 0.5F) * (1.0F / 65536.0F);
    const bool up = inside - static_cast<float>(level) > share * static_cast<float>(distance);
    levels[i] = level + (up ? distance : 0);
  }
  return clamped;
}

}  // namespace

const Kernels& scalar_kernels() {
  static constexpr Kernels kTable = {
      .name = "scalar",
      .hadamard = hadamard,
      .rotate = rotate,
      .measure_and_rotate = measure_and_rotate,
      .unrotate = unrotate,
      .quantise = quantise,
      .refine = refine,
      .split_planes = split_planes,
      .merge_planes = merge_planes,
      .dequantise = dequantise,
      .dequantise_refined = dequantise_refined,
      .draw_words = draw_words,
      .round_levels = round_levels,
  };
  return kTable;
}

// ------------------------------------------------------------------ choice of a table

namespace {

std::vector<const Kernels*> find_kernels() {
  std::vector<const Kernels*> tables;
#ifdef SPILLWAY_HAVE_HIGHWAY
  tables = highway_kernels();
#endif
  tables.push_back(&scalar_kernels());
  return tables;
}

const Kernels& choose_kernels() {
  const auto wanted = base::Environment::of_process().checked_text("SPILLWAY_SIMD");
  for (const Kernels* table : available_kernels()) {
    if (wanted.ok() && table->name == *wanted) {
      return *table;
    }
  }
  return *available_kernels().front();
}

}  // namespace

const std::vector<const Kernels*>& available_kernels() {
  static const std::vector<const Kernels*> tables = find_kernels();
  return tables;
}

const Kernels& best_kernels() {
  static const Kernels& chosen = choose_kernels();
  return chosen;
}

}  // namespace spillway::codec
