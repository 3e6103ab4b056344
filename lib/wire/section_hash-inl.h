// SPDX-License-Identifier: Apache-2.0
//
// POLYVAL on vectors. Products of blocks with powers of the hash key are summed unreduced, two
// blocks at a time by Karatsuba's rule; the sums are reduced once per 2 KiB.
#include "wire/section_kernels.h"

#if defined(SPILLWAY_WIRE_SECTION_HASH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SPILLWAY_WIRE_SECTION_HASH_INL_H
#undef SPILLWAY_WIRE_SECTION_HASH_INL_H
#else
#define SPILLWAY_WIRE_SECTION_HASH_INL_H
#endif

#include "wire/section_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::wire {
namespace HWY_NAMESPACE {
#ifdef SPILLWAY_SECTION_TARGET
namespace {

// Sums of products: of low halves, of high halves, and of the sums of both. Constructors are
// written out because the compiler's would not be compiled for this target.
template <std::size_t kBlocks>
struct Products {
  WordVec<kBlocks> low, middle, high;

  HWY_INLINE Products() {}  // uninitialized
  HWY_INLINE Products(WordVec<kBlocks> of_low, WordVec<kBlocks> of_middle, WordVec<kBlocks> of_high)
      : low(of_low), middle(of_middle), high(of_high) {}

  HWY_INLINE void clear() { low = middle = high = hn::Zero(typename Lanes<kBlocks>::Words()); }
};

#if SPILLWAY_SECTION_WIDTH == 4
HWY_INLINE WordVec<1> total(WordVec<4> sum) {
  const Lanes<2>::Words half;
  const Lanes<1>::Words quarter;
  const WordVec<2> two = hn::Xor(hn::LowerHalf(half, sum), hn::UpperHalf(half, sum));
  return hn::Xor(hn::LowerHalf(quarter, two), hn::UpperHalf(quarter, two));
}
#endif

// Divides by x^64 modulo POLYVAL's polynomial.
HWY_INLINE WordVec<1> divide(WordVec<1> value) {
  const WordVec<1> modulus = hn::Set(Lanes<1>::Words(), 0xC200000000000000U);
  return hn::Xor(hn::Shuffle01(value), hn::CLMulLower(value, modulus));
}

HWY_INLINE WordVec<1> reduced(const Products<1>& sum) {
  const Lanes<1>::Words d;
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
    const Lanes<4>::Words d;
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
  static constexpr Lanes<1>::Words kWords{};
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
    const typename Lanes<kBlocks>::Words d;
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
  const typename Lanes<kBlocks>::Words d;
  const WordVec<kBlocks> a = words_of<kBlocks>(four.a), b = words_of<kBlocks>(four.b);
  const WordVec<kBlocks> c = words_of<kBlocks>(four.c), e = words_of<kBlocks>(four.d);
  hash.add_pair(a, b, hn::CombineShiftRightBytes<8>(d, b, a));
  hash.add_pair(c, e, hn::CombineShiftRightBytes<8>(d, e, c));
}

// Four consecutive blocks in memory. Loading the bytes between two blocks replaces a shuffle, which
// would compete with the multiplications for their execution unit.
HWY_INLINE void add_four_at(const std::uint8_t* from, Four<1> four, Hash& hash) {
  const Lanes<1>::Bytes d;
  hash.add_pair(words_of<1>(four.a), words_of<1>(four.b), words_of<1>(hn::LoadU(d, from + 8)));
  hash.add_pair(words_of<1>(four.c), words_of<1>(four.d), words_of<1>(hn::LoadU(d, from + 40)));
}

}  // namespace
#endif
}  // namespace HWY_NAMESPACE
}  // namespace spillway::wire
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
