// SPDX-License-Identifier: Apache-2.0
//
// Coordinates to levels on vectors: the random rounding of level_code.h.
#include <cstdint>

#include "codec/kernels.h"

#if defined(SPILLWAY_CODEC_LEVEL_KERNELS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SPILLWAY_CODEC_LEVEL_KERNELS_INL_H
#undef SPILLWAY_CODEC_LEVEL_KERNELS_INL_H
#else
#define SPILLWAY_CODEC_LEVEL_KERNELS_INL_H
#endif

#include "codec/vector_types-inl.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::codec {
namespace HWY_NAMESPACE {

enum class Spacing { kUniform, kTable };

struct LevelGrid {
  FloatVector factor;
  FloatVector middle;
  FloatVector range;
  const std::uint32_t* cells;
};

HWY_INLINE FloatVector to_float(WordVector small) {
  return hn::ConvertTo(FloatTag(), hn::BitCast(IntTag(), small));
}

// Rounds one vector; `draw` has sixteen random bits per lane. Each lane of `clamped` is a counter.
template <Spacing kSpacing>
HWY_INLINE WordVector round_vector(const LevelGrid& grid, FloatVector value, WordVector draw,
                                   WordVector& clamped) {
  const FloatTag d;
  const WordTag dw;
  const FloatVector x = hn::MulAdd(value, grid.factor, grid.middle);
  const auto outside = hn::Or(hn::Lt(x, hn::Zero(d)), hn::Gt(x, grid.range));
  clamped = hn::Sub(clamped, hn::BitCast(dw, hn::VecFromMask(d, outside)));
  const FloatVector inside = hn::Min(hn::Max(x, hn::Zero(d)), grid.range);
  const auto floor = hn::ConvertTo(IntTag(), inside);
  FloatVector share =
      hn::Mul(hn::Add(to_float(draw), hn::Set(d, 0.5F)), hn::Set(d, 1.0F / 65536.0F));
  WordVector level = hn::BitCast(dw, floor);
  WordVector distance = hn::Set(dw, 1);
  if constexpr (kSpacing == Spacing::kTable) {
    const WordVector cell = hn::GatherIndex(dw, grid.cells, floor);
    level = hn::And(cell, hn::Set(dw, 0xFFFFU));
    distance = hn::ShiftRight<16>(cell);
    share = hn::Mul(share, to_float(distance));
  }
  const auto up = hn::Gt(hn::Sub(inside, to_float(level)), share);
  const WordVector taken = hn::BitCast(dw, hn::VecFromMask(d, up));
  return hn::Add(level, hn::And(taken, distance));
}

// Sixteen coordinates share eight dither words; the low halves serve the first eight.
template <Spacing kSpacing>
HWY_INLINE std::size_t round_all(const float* row, std::size_t count, const LevelGrid& grid,
                                 const std::uint32_t* dither, std::uint32_t* levels) {
  const FloatTag d;
  const WordTag dw;
  WordVector clamped = hn::Zero(dw);
  for (std::size_t i = 0; i < count; i += 16) {
    for (std::size_t k = 0; k < 8; k += kLanes) {
      const WordVector draws = hn::LoadU(dw, dither + i / 2 + k);
      const WordVector low = hn::And(draws, hn::Set(dw, 0xFFFFU));
      const WordVector high = hn::ShiftRight<16>(draws);
      hn::StoreU(round_vector<kSpacing>(grid, hn::LoadU(d, row + i + k), low, clamped), dw,
                 levels + i + k);
      hn::StoreU(round_vector<kSpacing>(grid, hn::LoadU(d, row + i + 8 + k), high, clamped), dw,
                 levels + i + 8 + k);
    }
  }
  return hn::GetLane(hn::SumOfLanes(dw, clamped));
}

std::size_t round_levels(const float* row, std::size_t count, float factor, float range,
                         const std::uint32_t* cells, const std::uint32_t* dither,
                         std::uint32_t* levels) {
  const FloatTag d;
  const LevelGrid grid{hn::Set(d, factor), hn::Set(d, range * 0.5F), hn::Set(d, range), cells};
  if (cells == nullptr) {
    return round_all<Spacing::kUniform>(row, count, grid, dither, levels);
  }
  return round_all<Spacing::kTable>(row, count, grid, dither, levels);
}

}  // namespace HWY_NAMESPACE
}  // namespace spillway::codec
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
