// SPDX-License-Identifier: Apache-2.0
//
// The kernels on Highway, compiled once per instruction set and chosen at run time.
//
// Vectors are capped at 256 bits: sixteen registers of eight floats hold a radix-8 butterfly, and
// wider ones gain nothing where a row streams from cache. SVE is left to the NEON table, because
// its vectors have no size and cannot be held in arrays.
#include <array>
#include <cstring>

#include "codec/kernels.h"
#include "codec/kernels_internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/kernels_highway.cc"
#define HWY_DISABLED_TARGETS \
  (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_SSSE3 | HWY_SSE4)
#include <hwy/foreach_target.h>  // NOLINT: Highway includes this file again for each target
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace spillway::codec {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, 8>;
using WordTag = hn::Rebind<std::uint32_t, FloatTag>;
using IntTag = hn::Rebind<std::int32_t, FloatTag>;
using FloatVector = hn::Vec<FloatTag>;
using WordVector = hn::Vec<WordTag>;

constexpr std::size_t kLanes = hn::MaxLanes(FloatTag());
static_assert(kLanes == 4 || kLanes == 8);

// ------------------------------------------------------------------ rotation

// The sign masks of kLanes coordinates, from the low bits of `bits`. Four lanes load them from a
// table: that costs a load port instead of three vector operations.
template <class D>
HWY_INLINE hn::Vec<D> sign_masks(D d, std::uint32_t bits) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return hn::Load(d, kSignMasks.nibble[bits & 15U].data());
  } else {
    alignas(32) static constexpr std::uint32_t kToTop[8] = {31, 30, 29, 28, 27, 26, 25, 24};
    return hn::And(hn::Shl(hn::Set(d, bits), hn::Load(d, kToTop)), hn::Set(d, 0x80000000U));
  }
}

HWY_INLINE FloatVector flip(FloatVector value, std::uint32_t bits) {
  const WordTag d;
  return hn::BitCast(FloatTag(), hn::Xor(hn::BitCast(d, value), sign_masks(d, bits)));
}

// Butterflies between lanes: a -> a + b in the lower lane, a - b in the upper one. The product with
// +-1 is exact, so a fused multiply-add rounds like the plain addition.
HWY_INLINE FloatVector mix_lanes(FloatVector v) {
  const FloatTag d;
  alignas(32) static constexpr float kByOne[8] = {1, -1, 1, -1, 1, -1, 1, -1};
  alignas(32) static constexpr float kByTwo[8] = {1, 1, -1, -1, 1, 1, -1, -1};
  v = hn::MulAdd(v, hn::Load(d, kByOne), hn::Shuffle2301(v));
  v = hn::MulAdd(v, hn::Load(d, kByTwo), hn::Shuffle1032(v));
  if constexpr (kLanes == 8) {
    alignas(32) static constexpr float kByFour[8] = {1, 1, 1, 1, -1, -1, -1, -1};
    v = hn::MulAdd(v, hn::Load(d, kByFour), hn::ConcatLowerUpper(d, v, v));
  }
  return v;
}

template <unsigned kLevels>
HWY_INLINE void butterflies(FloatVector* v) {
  constexpr unsigned kCount = 1U << kLevels;
  HWY_UNROLL(4)
  for (unsigned half = 1; half < kCount; half *= 2) {
    HWY_UNROLL(8)
    for (unsigned base = 0; base < kCount; base += 2 * half) {
      HWY_UNROLL(8)
      for (unsigned i = base; i < base + half; ++i) {
        const FloatVector a = v[i];
        const FloatVector b = v[i + half];
        v[i] = hn::Add(a, b);
        v[i + half] = hn::Sub(a, b);
      }
    }
  }
}

// Levels 0..5: everything within groups of 64 coordinates, with one load and one store each.
constexpr unsigned kGroupLevels = 6;
constexpr std::size_t kGroup = std::size_t{1} << kGroupLevels;
constexpr unsigned kGroupVectorLevels = kLanes == 4 ? 4 : 3;

// What a group's transform does to its values before the butterflies.
enum class Entry { kPlain, kFlip, kMeasureAndFlip };

// The moments of everything that passes through, in kAccumulators fixed lanes.
constexpr std::size_t kSumVectors = kAccumulators / kLanes;

struct Moments {
  FloatVector* sums;  // kSumVectors of them; plain arrays, as members would lose the target
  FloatVector& largest;
};

template <Entry kEntry>
HWY_INLINE void transform_group(const float* source, float* group, std::uint64_t signs,
                                const Moments& moments) {
  const FloatTag d;
  FloatVector v[kGroup / kLanes];
  HWY_UNROLL(16)
  for (std::size_t i = 0; i < kGroup / kLanes; ++i) {
    v[i] = hn::LoadU(d, source + i * kLanes);
    if constexpr (kEntry == Entry::kMeasureAndFlip) {
      FloatVector& sum = moments.sums[i % kSumVectors];
      const FloatVector square = hn::Mul(v[i], v[i]);
      sum = hn::Add(sum, square);
      moments.largest = hn::Max(moments.largest, square);
    }
    if constexpr (kEntry != Entry::kPlain) {
      v[i] = flip(v[i], static_cast<std::uint32_t>(signs >> (i * kLanes)));
    }
    v[i] = mix_lanes(v[i]);
  }
  butterflies<kGroupVectorLevels>(v);
  HWY_UNROLL(16)
  for (std::size_t i = 0; i < kGroup / kLanes; ++i) {
    hn::StoreU(v[i], d, group + i * kLanes);
  }
}

template <Entry kEntry>
HWY_INLINE void transform_groups(const float* source, float* row, std::size_t length,
                                 const std::uint32_t* sign_words, const Moments& moments) {
  for (std::size_t i = 0; i < length; i += kGroup) {
    std::uint64_t signs = 0;
    if constexpr (kEntry != Entry::kPlain) {
      std::memcpy(&signs, sign_words + i / 32, sizeof signs);
    }
    transform_group<kEntry>(source + i, row + i, signs, moments);
  }
}

// Vectors of data that a sweep holds in registers, leaving as many for what comes of them.
constexpr std::size_t kSweepVectors = HWY_TARGET == HWY_NEON ? 16 : 8;

// kLevels levels from `half` on, as one sweep of radix 2^kLevels butterflies. Each step takes as
// many neighbouring vectors from every stream as registers allow: streams are powers of two apart
// and fall on the same cache sets, so a line had better be used up while it is there.
template <unsigned kLevels>
void sweep(float* row, std::size_t length, std::size_t half) {
  const FloatTag d;
  constexpr std::size_t kRadix = std::size_t{1} << kLevels;
  constexpr std::size_t kColumns = kSweepVectors / kRadix;
  for (std::size_t base = 0; base < length; base += half * kRadix) {
    for (std::size_t i = base; i < base + half; i += kColumns * kLanes) {
      FloatVector v[kColumns][kRadix];
      HWY_UNROLL(16)
      for (std::size_t r = 0; r < kRadix; ++r) {
        HWY_UNROLL(8)
        for (std::size_t c = 0; c < kColumns; ++c) {
          v[c][r] = hn::LoadU(d, row + i + c * kLanes + r * half);
        }
      }
      HWY_UNROLL(8)
      for (std::size_t c = 0; c < kColumns; ++c) {
        butterflies<kLevels>(v[c]);
      }
      HWY_UNROLL(16)
      for (std::size_t r = 0; r < kRadix; ++r) {
        HWY_UNROLL(8)
        for (std::size_t c = 0; c < kColumns; ++c) {
          hn::StoreU(v[c][r], d, row + i + c * kLanes + r * half);
        }
      }
    }
  }
}

// A sweep of radix 16 needs twice sixteen registers.
constexpr unsigned kMaxSweepLevels = HWY_TARGET == HWY_NEON ? 4 : 3;

void transform_levels(float* row, std::size_t length, unsigned first, unsigned last) {
  while (first < last) {
    const unsigned sweeps = (last - first + kMaxSweepLevels - 1) / kMaxSweepLevels;
    const unsigned levels = (last - first + sweeps - 1) / sweeps;
    const std::size_t half = std::size_t{1} << first;
    switch (levels) {
      case 1:
        sweep<1>(row, length, half);
        break;
      case 2:
        sweep<2>(row, length, half);
        break;
      case 3:
        sweep<3>(row, length, half);
        break;
      default:
        sweep<kMaxSweepLevels>(row, length, half);
        break;
    }
    first += levels;
  }
}

// Levels up to here run tile by tile, each tile (32 KiB) staying in the first-level cache.
constexpr unsigned kTileLevels = 13;

template <Entry kEntry>
RowMoments transform(const float* source, float* row, unsigned log2_length,
                     const std::uint32_t* sign_words) {
  const FloatTag d;
  const std::size_t length = std::size_t{1} << log2_length;
  const unsigned tile_levels = log2_length < kTileLevels ? log2_length : kTileLevels;
  const std::size_t tile = std::size_t{1} << tile_levels;
  FloatVector sums[kSumVectors];
  for (FloatVector& sum : sums) {
    sum = hn::Zero(d);
  }
  FloatVector largest = hn::Zero(d);
  for (std::size_t base = 0; base < length; base += tile) {
    const std::uint32_t* signs = kEntry == Entry::kPlain ? nullptr : sign_words + base / 32;
    transform_groups<kEntry>(source + base, row + base, tile, signs, {sums, largest});
    transform_levels(row + base, tile, kGroupLevels, tile_levels);
  }
  transform_levels(row, length, tile_levels, log2_length);
  if constexpr (kEntry != Entry::kMeasureAndFlip) {
    return {};
  }
  std::array<float, kAccumulators> lanes;
  for (std::size_t k = 0; k < kSumVectors; ++k) {
    hn::StoreU(sums[k], d, lanes.data() + k * kLanes);
  }
  return {combine_lanes(lanes), hn::GetLane(hn::MaxOfLanes(d, largest))};
}

void rotate(float* row, unsigned log2_length, const std::uint32_t* sign_words) {
  transform<Entry::kFlip>(row, row, log2_length, sign_words);
}

RowMoments measure_and_rotate(const float* source, float* row, unsigned log2_length,
                              const std::uint32_t* sign_words) {
  return transform<Entry::kMeasureAndFlip>(source, row, log2_length, sign_words);
}

void hadamard(float* row, unsigned log2_length) {
  transform<Entry::kPlain>(row, row, log2_length, nullptr);
}

void unrotate(float* row, unsigned log2_length, const std::uint32_t* sign_words, float factor) {
  hadamard(row, log2_length);
  const FloatTag d;
  const FloatVector factors = hn::Set(d, factor);
  const std::size_t length = std::size_t{1} << log2_length;
  for (std::size_t i = 0; i < length; i += 32) {
    const std::uint32_t signs = sign_words[i / 32];
    for (std::size_t k = 0; k < 32; k += kLanes) {
      const FloatVector value = hn::Mul(hn::LoadU(d, row + i + k), factors);
      hn::StoreU(flip(value, signs >> k), d, row + i + k);
    }
  }
}

// ------------------------------------------------------------------ codes

using ShortTag = hn::Repartition<std::uint16_t, FloatTag>;
using ByteTag = hn::Repartition<std::uint8_t, FloatTag>;
using ByteVector = hn::Vec<ByteTag>;

constexpr std::size_t kCodesPerStep = 4 * kLanes;
static_assert(kSpanQuantum % kCodesPerStep == 0);

struct BytePair {
  ByteVector high;
  ByteVector low;
};

// The two low bytes of each of 4 * kLanes words, in order.
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

// 16 words of eight and eight shorts. A template, so that only the branch for this width is
// compiled.
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

// 4 * kLanes words of high << 8 | low, in order.
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

// Below this every coordinate lies on the inner lines, by a margin no rounding bridges.
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

// Slopes and bound of the cell of each 15-bit code.
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
  FloatVector offsets[kCompanderLines];  // missing planes stand at their middle
  for (unsigned i = 0; i < kCompanderLines; ++i) {
    const CompanderLine& line = kCompander[i];
    slopes[i] = hn::Set(d, line.unit_per_code);
    offsets[i] = hn::Set(d, half_cell * line.unit_per_code + line.unit_offset);
  }
  // The inner lines as one sum: beyond each breakpoint the slope grows. Exact, like the lines, as
  // no term needs more than 22 bits.
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

// ------------------------------------------------------------------ planes

// A block of 8 * stride coordinates is a bit matrix of eight rows, `stride` bytes each, whose byte
// columns are independent. kBytes columns at a time stand in eight vectors, which are transposed in
// three rounds of exchanging bits between vectors that are 4, 2 and 1 apart.
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

// v[j] bit k  <->  v[k] bit j, for every byte.
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

// ------------------------------------------------------------------ table

constexpr const char* target_name() {
  switch (HWY_TARGET) {
    case HWY_NEON:
      return "neon";
    case HWY_AVX2:
      return "avx2";
    case HWY_AVX3:
    case HWY_AVX3_DL:
      return "avx512";
    default:
      return "simd";
  }
}

const Kernels* table() {
  static constexpr Kernels kTable = {
      .name = target_name(),
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
  };
  return &kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace spillway::codec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::codec {

HWY_EXPORT(table);

std::vector<const Kernels*> highway_kernels() {
  // Targets without fused multiply-add cannot round as the wire format asks; CPUs that have no
  // better one run the scalar table.
  constexpr std::int64_t kFused = HWY_NEON | HWY_AVX2 | HWY_AVX3 | HWY_AVX3_DL;
  std::vector<const Kernels*> tables;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if ((target & kFused) != 0) {
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      tables.push_back(HWY_DYNAMIC_DISPATCH(table)());
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return tables;
}

}  // namespace spillway::codec
#endif
