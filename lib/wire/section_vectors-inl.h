// SPDX-License-Identifier: Apache-2.0
//
// Vectors of 16-byte blocks, their loads and stores, and the list of instruction sets that have
// kernels: those with AES and carry-less products.
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

#if defined(SPILLWAY_WIRE_SECTION_VECTORS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SPILLWAY_WIRE_SECTION_VECTORS_INL_H
#undef SPILLWAY_WIRE_SECTION_VECTORS_INL_H
#else
#define SPILLWAY_WIRE_SECTION_VECTORS_INL_H
#endif

#include <hwy/highway.h>

// On other targets Highway would emulate the missing instructions; the scalar table is faster.
#undef SPILLWAY_SECTION_TARGET
#undef SPILLWAY_SECTION_WIDTH
#define SPILLWAY_SECTION_WIDTH 1  // blocks in the widest vector with instructions for them
#if HWY_TARGET == HWY_NEON
#if defined(__ARM_FEATURE_AES) || (HWY_HAVE_RUNTIME_DISPATCH && HWY_ARCH_ARM_A64)
#define SPILLWAY_SECTION_TARGET "neon"
#endif
#elif HWY_TARGET == HWY_SSE4
#define SPILLWAY_SECTION_TARGET "sse4"
#elif HWY_TARGET == HWY_AVX2
#define SPILLWAY_SECTION_TARGET "avx2"
#elif HWY_TARGET == HWY_AVX3
#define SPILLWAY_SECTION_TARGET "avx512"
#elif HWY_TARGET == HWY_AVX3_DL
#define SPILLWAY_SECTION_TARGET "avx512-vaes"
#undef SPILLWAY_SECTION_WIDTH
#define SPILLWAY_SECTION_WIDTH 4
#endif

HWY_BEFORE_NAMESPACE();
namespace spillway::wire {
namespace HWY_NAMESPACE {
#ifdef SPILLWAY_SECTION_TARGET
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kBlock = 16;
constexpr std::size_t kWidth = SPILLWAY_SECTION_WIDTH;

// A vector of blocks, by lane type.
template <std::size_t kBlocks>
struct Lanes {
  using Words = hn::FixedTag<std::uint64_t, 2 * kBlocks>;
  using Counts = hn::FixedTag<std::uint32_t, 4 * kBlocks>;
  using Bytes = hn::FixedTag<std::uint8_t, kBlock * kBlocks>;
};
template <std::size_t kBlocks>
using WordVec = hn::Vec<typename Lanes<kBlocks>::Words>;
template <std::size_t kBlocks>
using ByteVec = hn::Vec<typename Lanes<kBlocks>::Bytes>;
template <std::size_t kBlocks>
using CountVec = hn::Vec<typename Lanes<kBlocks>::Counts>;

template <std::size_t kBlocks>
struct Four {
  ByteVec<kBlocks> a, b, c, d;
};

template <std::size_t kBlocks>
HWY_INLINE WordVec<kBlocks> words_of(ByteVec<kBlocks> bytes) {
  return hn::BitCast(typename Lanes<kBlocks>::Words(), bytes);
}

template <std::size_t kBlocks>
HWY_INLINE Four<kBlocks> load_four(const std::uint8_t* from) {
  const typename Lanes<kBlocks>::Bytes d;
  constexpr std::size_t kStride = kBlocks * kBlock;
  return {hn::LoadU(d, from), hn::LoadU(d, from + kStride), hn::LoadU(d, from + 2 * kStride),
          hn::LoadU(d, from + 3 * kStride)};
}

template <std::size_t kBlocks>
HWY_INLINE void store_four(Four<kBlocks> four, std::uint8_t* to) {
  const typename Lanes<kBlocks>::Bytes d;
  constexpr std::size_t kStride = kBlocks * kBlock;
  hn::StoreU(four.a, d, to);
  hn::StoreU(four.b, d, to + kStride);
  hn::StoreU(four.c, d, to + 2 * kStride);
  hn::StoreU(four.d, d, to + 3 * kStride);
}

template <std::size_t kBlocks>
HWY_INLINE Four<kBlocks> sum_of(Four<kBlocks> x, Four<kBlocks> y) {
  return {hn::Xor(x.a, y.a), hn::Xor(x.b, y.b), hn::Xor(x.c, y.c), hn::Xor(x.d, y.d)};
}

// Copies 1 to 15 bytes; the two ends may overlap.
template <typename Word>
HWY_INLINE void copy_ends(const std::uint8_t* from, std::size_t count, std::uint8_t* to) {
  const auto first = base::load_le<Word>(from);
  const auto last = base::load_le<Word>(from + count - sizeof(Word));
  base::store_le(to, first);
  base::store_le(to + count - sizeof(Word), last);
}
HWY_INLINE void copy_short(const std::uint8_t* from, std::size_t count, std::uint8_t* to) {
  if (count >= 8) {
    copy_ends<std::uint64_t>(from, count, to);
  } else if (count >= 4) {
    copy_ends<std::uint32_t>(from, count, to);
  } else {
    to[0] = from[0];
    to[count / 2] = from[count / 2];
    to[count - 1] = from[count - 1];
  }
}

// Loads 1 to 15 bytes, padded with zeros, without a detour through memory.
HWY_INLINE ByteVec<1> load_short(const std::uint8_t* from, std::size_t count) {
  std::uint64_t low;
  std::uint64_t high = 0;
  if (count >= 8) {
    low = base::load_le<std::uint64_t>(from);
    high = base::load_le<std::uint64_t>(from + count - 8) >> 1 >> (8 * (16 - count) - 1);
  } else if (count >= 4) {
    low = base::load_le<std::uint32_t>(from) |
          std::uint64_t{base::load_le<std::uint32_t>(from + count - 4)} << (8 * (count - 4));
  } else {
    low = std::uint64_t{from[0]} | std::uint64_t{from[count / 2]} << (8 * (count / 2)) |
          std::uint64_t{from[count - 1]} << (8 * (count - 1));
  }
  return hn::BitCast(Lanes<1>::Bytes(), hn::InsertLane(hn::Set(Lanes<1>::Words(), low), 1, high));
}

}  // namespace
#endif
}  // namespace HWY_NAMESPACE
}  // namespace spillway::wire
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
