// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of section_kernels_highway.cc, on vectors of 16-byte blocks: loads and stores,
// AES-128 and POLYVAL. It also lists the instruction sets that have kernels: those with AES and
// carry-less products.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bytes.h"
#include "wire/section_kernels.h"

#if defined(SPILLWAY_WIRE_SECTION_ARITHMETIC_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SPILLWAY_WIRE_SECTION_ARITHMETIC_INL_H
#undef SPILLWAY_WIRE_SECTION_ARITHMETIC_INL_H
#else
#define SPILLWAY_WIRE_SECTION_ARITHMETIC_INL_H
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

// ------------------------------------------------------------------ vectors of blocks

// A vector of blocks, by lane type.
template <std::size_t kBlocks>
struct VectorTags {
  using Words = hn::FixedTag<std::uint64_t, 2 * kBlocks>;
  using Counts = hn::FixedTag<std::uint32_t, 4 * kBlocks>;
  using Bytes = hn::FixedTag<std::uint8_t, kBlock * kBlocks>;
};
template <std::size_t kBlocks>
using WordVec = hn::Vec<typename VectorTags<kBlocks>::Words>;
template <std::size_t kBlocks>
using ByteVec = hn::Vec<typename VectorTags<kBlocks>::Bytes>;
template <std::size_t kBlocks>
using CountVec = hn::Vec<typename VectorTags<kBlocks>::Counts>;

template <std::size_t kBlocks>
struct Four {
  ByteVec<kBlocks> a, b, c, d;
};

template <std::size_t kBlocks>
HWY_INLINE WordVec<kBlocks> words_of(ByteVec<kBlocks> bytes) {
  return hn::BitCast(typename VectorTags<kBlocks>::Words(), bytes);
}

template <std::size_t kBlocks>
HWY_INLINE Four<kBlocks> load_four(const std::uint8_t* from) {
  const typename VectorTags<kBlocks>::Bytes d;
  constexpr std::size_t kStride = kBlocks * kBlock;
  return {hn::LoadU(d, from), hn::LoadU(d, from + kStride), hn::LoadU(d, from + 2 * kStride),
          hn::LoadU(d, from + 3 * kStride)};
}

template <std::size_t kBlocks>
HWY_INLINE void store_four(Four<kBlocks> four, std::uint8_t* to) {
  const typename VectorTags<kBlocks>::Bytes d;
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
  return hn::BitCast(VectorTags<1>::Bytes(),
                     hn::InsertLane(hn::Set(VectorTags<1>::Words(), low), 1, high));
}

// ------------------------------------------------------------------ AES-128
// Four vectors at a time hide the latency of the instruction.

template <std::size_t kBlocks>
HWY_INLINE ByteVec<kBlocks> round_key(const AesRounds& rounds, std::size_t round) {
  return hn::LoadDup128(typename VectorTags<kBlocks>::Bytes(), rounds[round].data());
}

template <std::size_t kBlocks>
HWY_INLINE Four<kBlocks> encrypt(const AesRounds& rounds, Four<kBlocks> text) {
  ByteVec<kBlocks> key = round_key<kBlocks>(rounds, 0);
  text = {hn::Xor(text.a, key), hn::Xor(text.b, key), hn::Xor(text.c, key), hn::Xor(text.d, key)};
  for (std::size_t round = 1; round < kAesRounds; ++round) {
    key = round_key<kBlocks>(rounds, round);
    text = {hn::AESRound(text.a, key), hn::AESRound(text.b, key), hn::AESRound(text.c, key),
            hn::AESRound(text.d, key)};
  }
  key = round_key<kBlocks>(rounds, kAesRounds);
  return {hn::AESLastRound(text.a, key), hn::AESLastRound(text.b, key),
          hn::AESLastRound(text.c, key), hn::AESLastRound(text.d, key)};
}

alignas(64) constexpr std::uint32_t kOrdinals[16] = {0, 0, 0, 0, 0, 0, 0, 1,
                                                     0, 0, 0, 2, 0, 0, 0, 3};
template <std::size_t kBlocks>
constexpr std::array<std::uint32_t, 4> kStep = {0, 0, 0, kBlocks};

// Encrypts counter blocks, four vectors at a time.
template <std::size_t kBlocks>
class KeyStream {
 public:
  HWY_INLINE KeyStream(const SectionKeys& keys, const Section& section, std::size_t first)
      : rounds_(keys.cipher) {
    alignas(16) std::array<std::uint32_t, 4> words;
    std::memcpy(words.data(), section.nonce.data(), sizeof words);
    words[3] = static_cast<std::uint32_t>(first);
    next_ = hn::Add(hn::LoadDup128(kCounts, words.data()), hn::Load(kCounts, kOrdinals));
  }

  HWY_INLINE Four<kBlocks> next() {
    const ByteVec<kBlocks> a = take(), b = take(), c = take(), d = take();
    return encrypt<kBlocks>(rounds_, {a, b, c, d});
  }

 private:
  static constexpr typename VectorTags<kBlocks>::Counts kCounts{};

  HWY_INLINE ByteVec<kBlocks> take() {
    const CountVec<kBlocks> now = next_;
    next_ = hn::Add(now, hn::LoadDup128(kCounts, kStep<kBlocks>.data()));
    return hn::BitCast(typename VectorTags<kBlocks>::Bytes(), now);
  }

  const AesRounds& rounds_;
  CountVec<kBlocks> next_;
};

// ------------------------------------------------------------------ POLYVAL
// Products of blocks with powers of the hash key are summed unreduced, two blocks at a time by
// Karatsuba's rule. The sums are reduced once per 2 KiB.

// Sums of products: of low halves, of high halves, and of the sums of both. Constructors are
// written out because the compiler's would not be compiled for this target.
template <std::size_t kBlocks>
struct Products {
  WordVec<kBlocks> low, middle, high;

  HWY_INLINE Products() {}  // uninitialized
  HWY_INLINE Products(WordVec<kBlocks> of_low, WordVec<kBlocks> of_middle, WordVec<kBlocks> of_high)
      : low(of_low), middle(of_middle), high(of_high) {}

  HWY_INLINE void clear() { low = middle = high = hn::Zero(typename VectorTags<kBlocks>::Words()); }
};

#if SPILLWAY_SECTION_WIDTH == 4
HWY_INLINE WordVec<1> total(WordVec<4> sum) {
  const VectorTags<2>::Words half;
  const VectorTags<1>::Words quarter;
  const WordVec<2> two = hn::Xor(hn::LowerHalf(half, sum), hn::UpperHalf(half, sum));
  return hn::Xor(hn::LowerHalf(quarter, two), hn::UpperHalf(quarter, two));
}
#endif

// Divides by x^64 modulo POLYVAL's polynomial.
HWY_INLINE WordVec<1> divide(WordVec<1> value) {
  const WordVec<1> modulus = hn::Set(VectorTags<1>::Words(), 0xC200000000000000U);
  return hn::Xor(hn::Shuffle01(value), hn::CLMulLower(value, modulus));
}

HWY_INLINE WordVec<1> reduced(const Products<1>& sum) {
  const VectorTags<1>::Words d;
  const WordVec<1> middle = hn::Xor(sum.middle, hn::Xor(sum.low, sum.high));
  const WordVec<1> low = hn::Xor(sum.low, hn::ShiftLeftBytes<8>(d, middle));
  const WordVec<1> high = hn::Xor(sum.high, hn::ShiftRightBytes<8>(d, middle));
  return hn::Xor(high, divide(divide(low)));
}

// The hash of one section. Blocks come in runs of at most kPowers.
class Hash {
 public:
  explicit HWY_INLINE Hash(const SectionKeys& keys) : keys_(keys) {
    carried_.clear();
    sum_.clear();
    wide_.clear();
  }

  // Starts a run of `blocks` blocks. The carry from earlier runs is kept apart from the run's own
  // sums: it takes a slow chain of products, for which nothing has to wait until the run ends.
  HWY_INLINE void begin(std::size_t blocks) {
    const bool first = at_ == kNotBegun;
    const WordVec<1> before = first ? hn::Zero(kWords) : reduced(products());
    at_ = SectionKeys::kPowers - blocks;
    carried_.clear();
    sum_.clear();
    wide_.clear();
    if (!first && blocks > 0) {
      add(before, carried_);  // the carry uses the next block's power, too
    }
  }

  HWY_INLINE void add(WordVec<1> x) {
    add(x, sum_);
    ++at_;
  }

  // Adds the blocks of x, then those of y. Each block of `between` has the high half of x's block
  // below the low half of y's. Xored with x, it gives the sum of halves in the low lanes; xored
  // with y, in the high lanes.
  HWY_INLINE void add_pair(WordVec<1> x, WordVec<1> y, WordVec<1> between) {
    const WordVec<1> half_sums = hn::LoadU(kWords, keys_.half_sums.data() + at_);
    add_products<1>(x, y, between, half_sums, half_sums, sum_);
  }
#if SPILLWAY_SECTION_WIDTH == 4
  HWY_INLINE void add_pair(WordVec<4> x, WordVec<4> y, WordVec<4> between) {
    const VectorTags<4>::Words d;
    const WordVec<4> px = hn::LoadU(d, keys_.powers[at_].data());
    const WordVec<4> py = hn::LoadU(d, keys_.powers[at_ + 4].data());
    const WordVec<4> p_between = hn::CombineShiftRightBytes<8>(d, py, px);
    add_products<4>(x, y, between, hn::Xor(px, p_between), hn::Xor(py, p_between), wide_);
  }
#endif

  HWY_INLINE Products<1> products() const {
#if SPILLWAY_SECTION_WIDTH == 4
    return {hn::Xor3(carried_.low, sum_.low, total(wide_.low)),
            hn::Xor3(carried_.middle, sum_.middle, total(wide_.middle)),
            hn::Xor3(carried_.high, sum_.high, total(wide_.high))};
#else
    return {hn::Xor(carried_.low, sum_.low), hn::Xor(carried_.middle, sum_.middle),
            hn::Xor(carried_.high, sum_.high)};
#endif
  }

 private:
  static constexpr VectorTags<1>::Words kWords{};
  static constexpr std::size_t kNotBegun = ~std::size_t{0};

  HWY_INLINE void add(WordVec<1> x, Products<1>& sum) const {
    const WordVec<1> power = hn::Load(kWords, keys_.powers[at_].data());
    const WordVec<1> half_sum = hn::LoadU(kWords, keys_.half_sums.data() + at_);
    sum.low = hn::Xor(sum.low, hn::CLMulLower(x, power));
    sum.high = hn::Xor(sum.high, hn::CLMulUpper(x, power));
    sum.middle = hn::Xor(sum.middle, hn::CLMulLower(hn::Xor(x, hn::Shuffle01(x)), half_sum));
  }

  template <std::size_t kBlocks>
  HWY_INLINE void add_products(WordVec<kBlocks> x, WordVec<kBlocks> y, WordVec<kBlocks> between,
                               WordVec<kBlocks> x_half_sums, WordVec<kBlocks> y_half_sums,
                               Products<kBlocks>& sum) {
    const typename VectorTags<kBlocks>::Words d;
    const WordVec<kBlocks> px = hn::LoadU(d, keys_.powers[at_].data());
    const WordVec<kBlocks> py = hn::LoadU(d, keys_.powers[at_ + kBlocks].data());
    sum.low = hn::Xor3(sum.low, hn::CLMulLower(x, px), hn::CLMulLower(y, py));
    sum.high = hn::Xor3(sum.high, hn::CLMulUpper(x, px), hn::CLMulUpper(y, py));
    sum.middle = hn::Xor3(sum.middle, hn::CLMulLower(hn::Xor(x, between), x_half_sums),
                          hn::CLMulUpper(hn::Xor(y, between), y_half_sums));
    at_ += 2 * kBlocks;
  }

  const SectionKeys& keys_;
  std::size_t at_ = kNotBegun;  // index of the next block's power
  Products<1> carried_;         // contribution of earlier runs
  Products<1> sum_;
  Products<kWidth> wide_;
};

template <std::size_t kBlocks>
HWY_INLINE void add_four(Four<kBlocks> four, Hash& hash) {
  const typename VectorTags<kBlocks>::Words d;
  const WordVec<kBlocks> a = words_of<kBlocks>(four.a), b = words_of<kBlocks>(four.b);
  const WordVec<kBlocks> c = words_of<kBlocks>(four.c), e = words_of<kBlocks>(four.d);
  hash.add_pair(a, b, hn::CombineShiftRightBytes<8>(d, b, a));
  hash.add_pair(c, e, hn::CombineShiftRightBytes<8>(d, e, c));
}

// Four consecutive blocks in memory. Loading the bytes between two blocks replaces a shuffle, which
// would compete with the multiplications for their execution unit.
HWY_INLINE void add_four_at(const std::uint8_t* from, Four<1> four, Hash& hash) {
  const VectorTags<1>::Bytes d;
  hash.add_pair(words_of<1>(four.a), words_of<1>(four.b), words_of<1>(hn::LoadU(d, from + 8)));
  hash.add_pair(words_of<1>(four.c), words_of<1>(four.d), words_of<1>(hn::LoadU(d, from + 40)));
}

}  // namespace
#endif
}  // namespace HWY_NAMESPACE
}  // namespace spillway::wire
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
