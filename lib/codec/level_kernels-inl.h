// SPDX-License-Identifier: Apache-2.0
//
// The levels code on vectors: Philox (base/random.h) with one counter per lane, and the random
// rounding of level_code.h.
#include <cstdint>

#include "base/random.h"
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

// ------------------------------------------------------------------ random words

// Vectors of counters that are drawn side by side. A round is a chain of slow multiplications;
// those of other vectors fill the gaps.
constexpr std::size_t kChains = 2 * kDrawCounters / kLanes;

struct WideProduct {
  WordVector low;
  WordVector high;
};

// The halves of each lane's 64-bit product. The instruction multiplies only every other lane.
HWY_INLINE WideProduct multiply_wide(WordVector a, WordVector factor) {
  const WordTag dw;
  const hn::Repartition<std::uint64_t, WordTag> wide;
  const auto even = hn::MulEven(a, factor);
  const WordVector odd_lanes = hn::BitCast(dw, hn::ShiftRight<32>(hn::BitCast(wide, a)));
  const auto odd = hn::MulEven(odd_lanes, factor);
  return {hn::OddEven(hn::BitCast(dw, hn::ShiftLeft<32>(odd)), hn::BitCast(dw, even)),
          hn::OddEven(hn::BitCast(dw, odd), hn::BitCast(dw, hn::ShiftRight<32>(even)))};
}

// Not a struct: its implicit constructor would be compiled for the wrong target.
using CounterVectors = WordVector[4];

HWY_INLINE void philox_round(CounterVectors& c, std::uint32_t key0, std::uint32_t key1) {
  const WordTag dw;
  const WideProduct first = multiply_wide(c[0], hn::Set(dw, 0xD2511F53U));
  const WideProduct second = multiply_wide(c[2], hn::Set(dw, 0xCD9E8D57U));
  c[0] = hn::Xor(hn::Xor(second.high, c[1]), hn::Set(dw, key0));
  c[1] = second.low;
  c[2] = hn::Xor(hn::Xor(first.high, c[3]), hn::Set(dw, key1));
  c[3] = first.low;
}

// Draws two groups of counters.
HWY_INLINE void draw_groups(std::uint64_t key, const base::RandomBlock& counter,
                            std::uint32_t* words) {
  const WordTag dw;
  CounterVectors chains[kChains];
  for (std::size_t v = 0; v < kChains; ++v) {
    const auto first = static_cast<std::uint32_t>(counter[0] + v * kLanes);
    chains[v][0] = hn::Iota(dw, first);
    for (std::size_t w = 1; w < 4; ++w) {
      chains[v][w] = hn::Set(dw, counter[w]);
    }
  }
  auto key0 = static_cast<std::uint32_t>(key);
  auto key1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    for (CounterVectors& chain : chains) {
      philox_round(chain, key0, key1);
    }
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  for (std::size_t v = 0; v < kChains; ++v) {
    const std::size_t at = v * kLanes / kDrawCounters * kDrawWords + v * kLanes % kDrawCounters;
    for (std::size_t w = 0; w < 4; ++w) {
      hn::StoreU(chains[v][w], dw, words + at + w * kDrawCounters);
    }
  }
}

void draw_words(std::uint64_t key, base::RandomBlock counter, std::size_t count,
                std::uint32_t* words) {
  for (std::size_t done = 0; done < count; done += 2 * kDrawWords) {
    draw_groups(key, counter, words + done);
    counter[0] += 2 * kDrawCounters;
  }
}

// ------------------------------------------------------------------ rounding to levels

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
