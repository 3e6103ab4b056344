// SPDX-License-Identifier: Apache-2.0
//
// Signs, Hadamard transform and row moments on vectors.
//
// The first six levels run in registers, within groups of 64 coordinates. The others are sweeps of
// radix 8 or 16, tile by tile. The order of additions is the oracle's, whatever the blocking.
#include <array>
#include <cstdint>
#include <cstring>

#include "codec/kernels.h"

#if defined(SPILLWAY_CODEC_ROTATION_KERNELS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SPILLWAY_CODEC_ROTATION_KERNELS_INL_H
#undef SPILLWAY_CODEC_ROTATION_KERNELS_INL_H
#else
#define SPILLWAY_CODEC_ROTATION_KERNELS_INL_H
#endif

#include "codec/vector_types-inl.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::codec {
namespace HWY_NAMESPACE {

// The sign masks of kLanes coordinates, from the low bits of `bits`. Four lanes load them from a
// table, which costs a load instead of three vector operations.
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
// +-1 is exact, so a fused multiply-add rounds like a plain addition.
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

// Levels 0..5, within groups of 64 coordinates, with one load and one store each.
constexpr unsigned kGroupLevels = 6;
constexpr std::size_t kGroup = std::size_t{1} << kGroupLevels;
constexpr unsigned kGroupVectorLevels = kLanes == 4 ? 4 : 3;

// The treatment of a group's values before the butterflies.
enum class Entry { kPlain, kFlip, kMeasureAndFlip };

// The moments of all values that pass through, in kAccumulators fixed lanes.
constexpr std::size_t kSumVectors = kAccumulators / kLanes;

struct Moments {
  FloatVector* sums;  // kSumVectors sums; plain arrays, because members would lose the target
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

// Data vectors of a sweep that stay in registers; as many are left for results.
constexpr std::size_t kSweepVectors = HWY_TARGET == HWY_NEON ? 16 : 8;

// Runs kLevels levels, starting at `half`, as one sweep of radix 2^kLevels butterflies. Each step
// takes as many neighbouring vectors from every stream as fit in registers. Streams are powers of
// two apart and share cache sets, so a line should be used up while it is cached.
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

// A sweep of radix 16 needs 32 registers.
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

// Levels up to here run tile by tile; a tile (32 KiB) stays in the L1 cache.
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

}  // namespace HWY_NAMESPACE
}  // namespace spillway::codec
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
