// SPDX-License-Identifier: Apache-2.0
//
// The planes code on vectors: coordinates to codes with the compander of plane_code.h, byte codes
// to bit planes, and both back.
#include <cstdint>

#include "codec/kernels.h"
#include "codec/plane_code.h"

#if defined(SPILLWAY_CODEC_PLANE_KERNELS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SPILLWAY_CODEC_PLANE_KERNELS_INL_H
#undef SPILLWAY_CODEC_PLANE_KERNELS_INL_H
#else
#define SPILLWAY_CODEC_PLANE_KERNELS_INL_H
#endif

#include "codec/vector_types-inl.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::codec {
namespace HWY_NAMESPACE {

// ------------------------------------------------------------------ coordinates to codes
//
// Most vectors hold no coordinate beyond the inner lines and skip the outer ones. The margin
// between the two guarantees that this choice never changes the result.

using ShortTag = hn::Repartition<std::uint16_t, FloatTag>;
using ByteTag = hn::Repartition<std::uint8_t, FloatTag>;
using ByteVector = hn::Vec<ByteTag>;

constexpr std::size_t kCodesPerStep = 4 * kLanes;
static_assert(kSpanQuantum % kCodesPerStep == 0);

struct BytePair {
  ByteVector high;
  ByteVector low;
};

// The low two bytes of each of 4 * kLanes words, in order.
HWY_INLINE BytePair narrow(const WordVector* words) {
  const ShortTag d16;
  const ByteTag d8;
  const auto front = hn::ConcatEven(d16, hn::BitCast(d16, words[1]), hn::BitCast(d16, words[0]));
  const auto back = hn::ConcatEven(d16, hn::BitCast(d16, words[3]), hn::BitCast(d16, words[2]));
  return {hn::ConcatOdd(d8, hn::BitCast(d8, back), hn::BitCast(d8, front)),
          hn::ConcatEven(d8, hn::BitCast(d8, back), hn::BitCast(d8, front))};
}

// The top byte of each of 4 * kLanes words, in order.
HWY_INLINE ByteVector top_bytes(const WordVector* words) {
  const ShortTag d16;
  const ByteTag d8;
  const auto front = hn::ConcatOdd(d16, hn::BitCast(d16, words[1]), hn::BitCast(d16, words[0]));
  const auto back = hn::ConcatOdd(d16, hn::BitCast(d16, words[3]), hn::BitCast(d16, words[2]));
  return hn::ConcatOdd(d8, hn::BitCast(d8, back), hn::BitCast(d8, front));
}

// Widens two vectors of eight shorts to 16 words. A template, so that only the branch for this
// width is compiled.
template <class D, class ShortVector>
HWY_INLINE void promote(D d, ShortVector front, ShortVector back, hn::Vec<D>* words) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    const hn::FixedTag<std::uint16_t, 4> half;
    words[0] = hn::PromoteTo(d, hn::LowerHalf(half, front));
    words[1] = hn::PromoteTo(d, hn::UpperHalf(half, front));
    words[2] = hn::PromoteTo(d, hn::LowerHalf(half, back));
    words[3] = hn::PromoteTo(d, hn::UpperHalf(half, back));
  } else {
    words[0] = hn::PromoteTo(d, front);
    words[1] = hn::PromoteTo(d, back);
  }
}

// Builds 4 * kLanes words as high << 8 | low, in order.
HWY_INLINE void widen(const std::uint8_t* high, const std::uint8_t* low, WordVector* words) {
  const hn::FixedTag<std::uint8_t, 16> d8;
  const hn::FixedTag<std::uint16_t, 8> d16;
  for (std::size_t step = 0; step < kCodesPerStep; step += 16) {
    const auto highs = hn::LoadU(d8, high + step);
    const auto lows = hn::LoadU(d8, low + step);
    promote(WordTag(), hn::BitCast(d16, hn::InterleaveLower(d8, lows, highs)),
            hn::BitCast(d16, hn::InterleaveUpper(d8, lows, highs)), words + step / kLanes);
  }
}

// Below this every coordinate lies on the inner lines, by more than any rounding error.
constexpr float kInnerMagnitude = 2.5F;
static_assert(kInnerMagnitude < internal::kBreakUnits[kInnerLines]);

float quantise(const float* row, std::size_t count, float inverse_scale, std::uint8_t* high,
               std::uint8_t* low) {
  const FloatTag d;
  const IntTag di;
  const ByteTag d8;
  const ScaledCompander compander(inverse_scale);
  const FloatVector inner_slope = hn::Set(d, compander.inner_slope);
  const FloatVector bend0 = hn::Set(d, compander.bend[0]);
  const FloatVector bend1 = hn::Set(d, compander.bend[1]);
  const FloatVector bend_at0 = hn::Set(d, compander.bend_at[0]);
  const FloatVector bend_at1 = hn::Set(d, compander.bend_at[1]);
  const FloatVector inner = hn::Set(d, kInnerMagnitude / inverse_scale);
  FloatVector peak = hn::Zero(d);
  for (std::size_t i = 0; i < count; i += kCodesPerStep) {
    FloatVector values[4];
    FloatVector codes[4];
    for (std::size_t k = 0; k < 4; ++k) {
      values[k] = hn::LoadU(d, row + i + k * kLanes);
      const FloatVector absolute = hn::Abs(values[k]);
      codes[k] = hn::Mul(absolute, inner_slope);
      codes[k] = hn::MulAdd(hn::Min(absolute, bend_at0), bend0, codes[k]);
      codes[k] = hn::MulAdd(hn::Min(absolute, bend_at1), bend1, codes[k]);
    }
    const FloatVector largest = hn::Max(hn::Max(hn::Abs(values[0]), hn::Abs(values[1])),
                                        hn::Max(hn::Abs(values[2]), hn::Abs(values[3])));
    peak = hn::Max(peak, largest);
    if (HWY_UNLIKELY(!hn::AllTrue(d, hn::Lt(largest, inner)))) {
      for (std::size_t k = 0; k < 4; ++k) {
        const FloatVector absolute = hn::Abs(values[k]);
        codes[k] = hn::Min(codes[k], hn::Set(d, kMaxCode));
        for (unsigned line = kInnerLines; line < kCompanderLines; ++line) {
          const FloatVector slope = hn::Set(d, compander.outer_slope[line - kInnerLines]);
          const FloatVector offset = hn::Set(d, kCompander[line].code_offset);
          codes[k] = hn::Min(codes[k], hn::MulAdd(absolute, slope, offset));
        }
      }
    }
    WordVector code_words[4];
    WordVector value_words[4];
    for (std::size_t k = 0; k < 4; ++k) {
      code_words[k] = hn::BitCast(WordTag(), hn::ConvertTo(di, codes[k]));
      value_words[k] = hn::BitCast(WordTag(), values[k]);
    }
    const BytePair bytes = narrow(code_words);
    const ByteVector signs = hn::And(top_bytes(value_words), hn::Set(d8, 0x80));
    hn::StoreU(hn::Or(bytes.high, signs), d8, high + i);
    hn::StoreU(bytes.low, d8, low + i);
  }
  return hn::GetLane(hn::MaxOfLanes(d, peak)) * inverse_scale;
}

// The slope of each 15-bit code's line and the bound of its cell.
struct Cell {
  FloatVector bound;
  FloatVector unit_per_code;
  FloatVector code_per_unit;
};

HWY_INLINE Cell cell_of(FloatVector code) {
  const FloatTag d;
  FloatVector offset = hn::Set(d, kCompander[0].unit_offset);
  Cell cell{hn::Zero(d), hn::Set(d, kCompander[0].unit_per_code),
            hn::Set(d, kCompander[0].code_per_unit)};
  for (unsigned i = 1; i < kCompanderLines; ++i) {
    const CompanderLine& line = kCompander[i];
    const auto beyond = hn::Ge(code, hn::Set(d, line.first_code));
    offset = hn::IfThenElse(beyond, hn::Set(d, line.unit_offset), offset);
    cell.unit_per_code = hn::IfThenElse(beyond, hn::Set(d, line.unit_per_code), cell.unit_per_code);
    cell.code_per_unit = hn::IfThenElse(beyond, hn::Set(d, line.code_per_unit), cell.code_per_unit);
  }
  cell.bound = hn::MulAdd(code, cell.unit_per_code, offset);  // exact
  return cell;
}

HWY_INLINE FloatVector magnitude_code(WordVector code16) {
  const WordVector code = hn::And(code16, hn::Set(WordTag(), 0x7FFFU));
  return hn::ConvertTo(FloatTag(), hn::BitCast(IntTag(), code));
}

HWY_INLINE FloatVector with_sign_of(WordVector code16, FloatVector magnitude) {
  return hn::CopySignToAbs(magnitude, hn::BitCast(FloatTag(), hn::ShiftLeft<16>(code16)));
}

void refine(const float* row, std::size_t count, float inverse_scale, const std::uint8_t* high,
            const std::uint8_t* low, std::uint8_t* third, std::uint8_t* fourth) {
  const FloatTag d;
  const FloatVector scale = hn::Set(d, inverse_scale);
  for (std::size_t i = 0; i < count; i += kCodesPerStep) {
    WordVector words[4];
    widen(high + i, low + i, words);
    for (std::size_t k = 0; k < 4; ++k) {
      const Cell cell = cell_of(magnitude_code(words[k]));
      const FloatVector magnitude = hn::Mul(hn::Abs(hn::LoadU(d, row + i + k * kLanes)), scale);
      const FloatVector inside = hn::Mul(
          hn::Mul(hn::Sub(magnitude, cell.bound), cell.code_per_unit), hn::Set(d, 65536.0F));
      const FloatVector clamped = hn::Min(hn::Max(inside, hn::Zero(d)), hn::Set(d, 65535.0F));
      words[k] = hn::BitCast(WordTag(), hn::ConvertTo(IntTag(), clamped));
    }
    const BytePair bytes = narrow(words);
    hn::StoreU(bytes.high, ByteTag(), third + i);
    hn::StoreU(bytes.low, ByteTag(), fourth + i);
  }
}

void dequantise(const std::uint8_t* high, const std::uint8_t* low, std::size_t count,
                unsigned planes, float* values) {
  const FloatTag d;
  const ByteTag d8;
  const float half_cell = 0.5F * static_cast<float>(1U << (kCompandedPlanes - planes));
  FloatVector slopes[kCompanderLines];
  FloatVector offsets[kCompanderLines];  // absent planes count as the middle of their range
  for (unsigned i = 0; i < kCompanderLines; ++i) {
    const CompanderLine& line = kCompander[i];
    slopes[i] = hn::Set(d, line.unit_per_code);
    offsets[i] = hn::Set(d, half_cell * line.unit_per_code + line.unit_offset);
  }
  // The inner lines as one sum: the slope grows at each breakpoint. It is as exact as the lines,
  // because no term needs more than 22 bits.
  FloatVector growth[kInnerLines];
  FloatVector breaks[kInnerLines];
  float start = half_cell * kCompander[0].unit_per_code;
  for (unsigned i = 1; i < kInnerLines; ++i) {
    const float steeper = kCompander[i].unit_per_code - kCompander[i - 1].unit_per_code;
    growth[i] = hn::Set(d, steeper);
    breaks[i] = hn::Set(d, kCompander[i].first_code - half_cell);
    start -= steeper * (kCompander[i].first_code - half_cell);
  }
  const FloatVector first_offset = hn::Set(d, start);
  constexpr auto kFirstOuterByte =
      static_cast<std::uint8_t>(internal::kBreakCodes[kInnerLines] / 256);
  for (std::size_t i = 0; i < count; i += kCodesPerStep) {
    WordVector words[4];
    FloatVector codes[4];
    FloatVector magnitudes[4];
    widen(high + i, low + i, words);
    for (std::size_t k = 0; k < 4; ++k) {
      codes[k] = magnitude_code(words[k]);
      magnitudes[k] = hn::MulAdd(codes[k], slopes[0], first_offset);
      for (unsigned line = 1; line < kInnerLines; ++line) {
        magnitudes[k] = hn::MulAdd(hn::Max(codes[k], breaks[line]), growth[line], magnitudes[k]);
      }
    }
    const ByteVector leading = hn::And(hn::LoadU(d8, high + i), hn::Set(d8, 0x7F));
    if (HWY_UNLIKELY(!hn::AllTrue(d8, hn::Lt(leading, hn::Set(d8, kFirstOuterByte))))) {
      for (std::size_t k = 0; k < 4; ++k) {
        for (unsigned line = kInnerLines; line < kCompanderLines; ++line) {
          magnitudes[k] = hn::Max(magnitudes[k], hn::MulAdd(codes[k], slopes[line], offsets[line]));
        }
      }
    }
    for (std::size_t k = 0; k < 4; ++k) {
      hn::StoreU(with_sign_of(words[k], magnitudes[k]), d, values + i + k * kLanes);
    }
  }
}

void dequantise_refined(const std::uint8_t* high, const std::uint8_t* low,
                        const std::uint8_t* third, const std::uint8_t* fourth, std::size_t count,
                        unsigned planes, float* values) {
  const FloatTag d;
  const FloatVector half_cell = hn::Set(d, 0.5F * static_cast<float>(1U << (kMaxPlanes - planes)));
  for (std::size_t i = 0; i < count; i += kCodesPerStep) {
    WordVector words[4];
    WordVector fractions[4];
    widen(high + i, low + i, words);
    widen(third + i, fourth + i, fractions);
    for (std::size_t k = 0; k < 4; ++k) {
      const Cell cell = cell_of(magnitude_code(words[k]));
      const FloatVector inside =
          hn::Add(hn::ConvertTo(d, hn::BitCast(IntTag(), fractions[k])), half_cell);
      const FloatVector offset =
          hn::Mul(hn::Mul(inside, cell.unit_per_code), hn::Set(d, 1.0F / 65536.0F));
      hn::StoreU(with_sign_of(words[k], hn::Add(cell.bound, offset)), d, values + i + k * kLanes);
    }
  }
}

// ------------------------------------------------------------------ byte codes to bit planes

// A block of 8 * stride coordinates is a bit matrix of eight rows with `stride` bytes each; its
// byte columns are independent. Eight vectors hold kBytes columns at a time. Three rounds transpose
// them by exchanging bits between vectors that are 4, 2 and 1 apart.
template <std::size_t kBytes>
using ColumnTag = hn::FixedTag<std::uint32_t, kBytes / 4>;
template <std::size_t kBytes>
using ColumnVector = hn::Vec<ColumnTag<kBytes>>;

constexpr std::size_t kFullStride = kPlaneBlock / 8;

template <int kShift, class Vector>
HWY_INLINE void exchange_bits(Vector& a, Vector& b, std::uint32_t mask) {
  const hn::DFromV<Vector> d;
  const Vector moved = hn::And(hn::Xor(hn::ShiftRight<kShift>(a), b), hn::Set(d, mask));
  b = hn::Xor(b, moved);
  a = hn::Xor(a, hn::ShiftLeft<kShift>(moved));
}

// Swaps v[j] bit k  <->  v[k] bit j in every byte.
template <class Vector>
HWY_INLINE void transpose_bits(Vector* v) {
  for (unsigned i = 0; i < 4; ++i) {
    exchange_bits<4>(v[i], v[i + 4], 0x0F0F0F0FU);
  }
  for (const unsigned i : {0U, 1U, 4U, 5U}) {
    exchange_bits<2>(v[i], v[i + 2], 0x33333333U);
  }
  for (const unsigned i : {0U, 2U, 4U, 6U}) {
    exchange_bits<1>(v[i], v[i + 1], 0x55555555U);
  }
}

template <std::size_t kBytes>
HWY_INLINE ColumnVector<kBytes> load_columns(const std::uint8_t* from) {
  const hn::FixedTag<std::uint8_t, kBytes> d8;
  return hn::BitCast(ColumnTag<kBytes>(), hn::LoadU(d8, from));
}

template <std::size_t kBytes>
HWY_INLINE void store_columns(ColumnVector<kBytes> v, std::uint8_t* to) {
  const hn::FixedTag<std::uint8_t, kBytes> d8;
  hn::StoreU(hn::BitCast(d8, v), d8, to);
}

template <std::size_t kBytes>
HWY_INLINE void split_columns(const std::uint8_t* codes, std::size_t stride, unsigned wanted,
                              std::uint8_t* planes, std::size_t plane_stride) {
  ColumnVector<kBytes> v[8];
  for (unsigned k = 0; k < 8; ++k) {
    v[k] = load_columns<kBytes>(codes + k * stride);
  }
  transpose_bits(v);
  for (unsigned plane = 0; plane < wanted; ++plane) {
    store_columns<kBytes>(v[7 - plane], planes + plane * plane_stride);
  }
}

template <std::size_t kBytes>
HWY_INLINE void merge_columns(const std::uint8_t* planes, std::size_t plane_stride,
                              unsigned present, std::uint8_t* codes, std::size_t stride) {
  ColumnVector<kBytes> v[8];
  for (unsigned plane = 0; plane < 8; ++plane) {
    v[7 - plane] = plane < present ? load_columns<kBytes>(planes + plane * plane_stride)
                                   : hn::Zero(ColumnTag<kBytes>());
  }
  transpose_bits(v);
  for (unsigned k = 0; k < 8; ++k) {
    store_columns<kBytes>(v[k], codes + k * stride);
  }
}

void split_planes(const std::uint8_t* codes, std::size_t count, unsigned wanted,
                  std::uint8_t* planes, std::size_t plane_stride) {
  const std::size_t whole = count / kPlaneBlock * kPlaneBlock;
  for (std::size_t block = 0; block < whole; block += kPlaneBlock) {
    split_columns<kFullStride>(codes + block, kFullStride, wanted, planes + block / 8,
                               plane_stride);
  }
  const std::size_t stride = (count - whole) / 8;  // 0, 4, 8 or 12
  codes += whole;
  planes += whole / 8;
  if ((stride & 8U) != 0) {
    split_columns<8>(codes, stride, wanted, planes, plane_stride);
  }
  if ((stride & 4U) != 0) {
    const std::size_t column = stride & 8U;
    split_columns<4>(codes + column, stride, wanted, planes + column, plane_stride);
  }
}

void merge_planes(const std::uint8_t* planes, std::size_t plane_stride, unsigned present,
                  std::size_t count, std::uint8_t* codes) {
  const std::size_t whole = count / kPlaneBlock * kPlaneBlock;
  for (std::size_t block = 0; block < whole; block += kPlaneBlock) {
    merge_columns<kFullStride>(planes + block / 8, plane_stride, present, codes + block,
                               kFullStride);
  }
  const std::size_t stride = (count - whole) / 8;  // 0, 4, 8 or 12
  codes += whole;
  planes += whole / 8;
  if ((stride & 8U) != 0) {
    merge_columns<8>(planes, plane_stride, present, codes, stride);
  }
  if ((stride & 4U) != 0) {
    const std::size_t column = stride & 8U;
    merge_columns<4>(planes + column, plane_stride, present, codes + column, stride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace spillway::codec
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
