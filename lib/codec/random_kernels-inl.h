// SPDX-License-Identifier: Apache-2.0
//
// Philox (base/random.h) on vectors, one counter per lane.
#include <cstdint>

#include "base/random.h"
#include "codec/kernels.h"

#if defined(SPILLWAY_CODEC_RANDOM_KERNELS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SPILLWAY_CODEC_RANDOM_KERNELS_INL_H
#undef SPILLWAY_CODEC_RANDOM_KERNELS_INL_H
#else
#define SPILLWAY_CODEC_RANDOM_KERNELS_INL_H
#endif

#include "codec/vector_types-inl.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::codec {
namespace HWY_NAMESPACE {

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

}  // namespace HWY_NAMESPACE
}  // namespace spillway::codec
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
