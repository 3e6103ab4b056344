// SPDX-License-Identifier: Apache-2.0
//
// The coder's rounds on vectors, for x86 with AVX2 or AVX-512: one lane per state, arithmetic and
// words for all lanes at once. Table entries are loaded lane by lane: gather instructions are half
// as fast on CPUs with microcode mitigations, and no faster elsewhere.
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "codec/entropy/rans.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/entropy/rans_kernels_highway.cc"
#define HWY_BROKEN_EMU128 0  // as in codec/kernels_highway.cc
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#include <hwy/foreach_target.h>  // NOLINT: Highway includes this file again for each target
// After foreach_target.h, on which it depends.
#include <hwy/highway.h>

#ifndef SPILLWAY_CODEC_ENTROPY_LANE_ORDER
#define SPILLWAY_CODEC_ENTROPY_LANE_ORDER
namespace spillway::codec::entropy {

// For eight lanes, some of them marked (one bit each): which of consecutive words a marked lane
// takes, and which lane each of eight words comes from if the marked lanes' words fill the end.
struct LaneOrder {
  std::array<std::array<std::uint8_t, 8>, 256> spread;
  std::array<std::array<std::uint8_t, 8>, 256> gather_at_end;
};

inline constexpr LaneOrder kLaneOrder = [] {
  LaneOrder order{};
  for (unsigned marks = 0; marks < 256; ++marks) {
    unsigned seen = 0;
    const auto count = static_cast<unsigned>(std::popcount(marks));
    for (unsigned lane = 0; lane < 8; ++lane) {
      order.spread[marks][lane] = static_cast<std::uint8_t>(seen);
      if ((marks >> lane & 1U) != 0) {
        order.gather_at_end[marks][8 - count + seen] = static_cast<std::uint8_t>(lane);
        seen = seen < 7 ? seen + 1 : 7;
      }
    }
  }
  return order;
}();

}  // namespace spillway::codec::entropy
#endif

HWY_BEFORE_NAMESPACE();
namespace spillway::codec::entropy {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
#define SPILLWAY_RANS_WIDE (HWY_TARGET != HWY_AVX2)

namespace hn = hwy::HWY_NAMESPACE;

using Lanes = hn::FixedTag<std::uint32_t, SPILLWAY_RANS_WIDE ? 16 : 8>;
using SignedLanes = hn::RebindToSigned<Lanes>;
using HalfLanes = hn::Rebind<std::uint16_t, Lanes>;
using Vector = hn::Vec<Lanes>;
constexpr std::size_t kWidth = hn::MaxLanes(Lanes());
constexpr std::size_t kVectors = kManyStates / kWidth;

HWY_INLINE Vector join(const __m128i* quarters) {
#if SPILLWAY_RANS_WIDE
  const __m256i low = _mm256_set_m128i(quarters[1], quarters[0]);
  const __m256i high = _mm256_set_m128i(quarters[3], quarters[2]);
  return Vector{_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1)};
#else
  return Vector{_mm256_set_m128i(quarters[1], quarters[0])};
#endif
}

HWY_INLINE unsigned marks_of(hn::Mask<Lanes> mask) {
#if SPILLWAY_RANS_WIDE
  return mask.raw;
#else
  return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(mask.raw)));
#endif
}

// Moves the first words of `words` to the marked lanes; other lanes are undefined.
HWY_INLINE Vector spread_words(Vector words, hn::Mask<Lanes> mask, unsigned marks) {
#if SPILLWAY_RANS_WIDE
  (void)marks;
  return Vector{_mm512_maskz_expand_epi32(mask.raw, words.raw)};
#else
  (void)mask;
  const hn::Rebind<std::uint8_t, Lanes> bytes;
  const auto order = hn::PromoteTo(Lanes(), hn::LoadU(bytes, kLaneOrder.spread[marks].data()));
  return hn::TableLookupLanes(words, hn::IndicesFromVec(Lanes(), order));
#endif
}

// Writes the low halves of marked lanes below `words`, and up to kSlackWords below that.
HWY_INLINE void store_words(Vector values, hn::Mask<Lanes> mask, unsigned marks,
                            std::uint16_t* words) {
  const auto count = std::popcount(marks);
#if SPILLWAY_RANS_WIDE
  const __m512i packed = _mm512_maskz_compress_epi32(mask.raw, values.raw);
  _mm256_mask_storeu_epi16(words - count, static_cast<__mmask16>((1U << count) - 1),
                           _mm512_cvtepi32_epi16(packed));
#else
  (void)mask;
  (void)count;
  const hn::Rebind<std::uint8_t, Lanes> bytes;
  const auto order =
      hn::PromoteTo(Lanes(), hn::LoadU(bytes, kLaneOrder.gather_at_end[marks].data()));
  const Vector packed = hn::TableLookupLanes(values, hn::IndicesFromVec(Lanes(), order));
  hn::StoreU(hn::TruncateTo(HalfLanes(), packed), HalfLanes(), words - kWidth);
#endif
}

HWY_INLINE __m128i quarter_of(Vector v, std::size_t quarter) {
#if SPILLWAY_RANS_WIDE
  switch (quarter) {
    case 0:
      return _mm512_castsi512_si128(v.raw);
    case 1:
      return _mm512_extracti32x4_epi32(v.raw, 1);
    case 2:
      return _mm512_extracti32x4_epi32(v.raw, 2);
    default:
      return _mm512_extracti32x4_epi32(v.raw, 3);
  }
#else
  return quarter == 0 ? _mm256_castsi256_si128(v.raw) : _mm256_extracti128_si256(v.raw, 1);
#endif
}

// Stores the symbols of slots and returns their entries. Lanes are extracted in pairs, because a
// single port of the CPU does all cross-lane moves.
template <typename Symbol>
HWY_INLINE Vector look_up(const std::uint32_t* entries, const Symbol* slots, Vector slot,
                          Symbol* symbols) {
  std::array<__m128i, kWidth / 4> quarters;
  for (std::size_t i = 0; i < kWidth; i += 4) {
    const __m128i four = quarter_of(slot, i / 4);
    const auto low = static_cast<std::uint64_t>(_mm_cvtsi128_si64(four));
    const auto high = static_cast<std::uint64_t>(_mm_extract_epi64(four, 1));
    const std::uint32_t s0 = slots[static_cast<std::uint32_t>(low)];
    const std::uint32_t s1 = slots[low >> 32];
    const std::uint32_t s2 = slots[static_cast<std::uint32_t>(high)];
    const std::uint32_t s3 = slots[high >> 32];
    __m128i quarter = _mm_cvtsi32_si128(static_cast<int>(entries[s0]));
    quarter = _mm_insert_epi32(quarter, static_cast<int>(entries[s1]), 1);
    quarter = _mm_insert_epi32(quarter, static_cast<int>(entries[s2]), 2);
    quarters[i / 4] = _mm_insert_epi32(quarter, static_cast<int>(entries[s3]), 3);
    symbols[i] = static_cast<Symbol>(s0);
    symbols[i + 1] = static_cast<Symbol>(s1);
    symbols[i + 2] = static_cast<Symbol>(s2);
    symbols[i + 3] = static_cast<Symbol>(s3);
  }
  return join(quarters.data());
}

// Takes a symbol out of each lane of `x`, and reads words where needed.
template <typename Symbol>
HWY_INLINE Vector decode_lanes(const std::uint32_t* entries, const Symbol* slots, Vector x,
                               const std::uint8_t*& next, Symbol* symbols) {
  const Lanes d;
  const Vector slot = hn::And(x, hn::Set(d, kProbabilityTotal - 1));
  const Vector entry = look_up(entries, slots, slot, symbols);
  const Vector frequency = hn::And(entry, hn::Set(d, 0xFFFFU));
  const Vector quotient = hn::ShiftRight<kProbabilityBits>(x);
  x = hn::Add(hn::Mul(frequency, quotient), hn::Sub(slot, hn::ShiftRight<16>(entry)));
  const auto is_short = hn::Eq(hn::ShiftRight<16>(x), hn::Zero(d));
  const unsigned marks = marks_of(is_short);
  const auto words =
      hn::PromoteTo(d, hn::LoadU(HalfLanes(), reinterpret_cast<const std::uint16_t*>(next)));
  next += 2 * static_cast<std::size_t>(std::popcount(marks));
  const Vector refilled = hn::Or(hn::ShiftLeft<16>(x), spread_words(words, is_short, marks));
  return hn::IfThenElse(is_short, refilled, x);
}

template <typename Symbol>
std::size_t decode_rounds(const DecodeTable& table, Symbol* symbols, std::size_t rounds,
                          std::uint32_t* states, WordStream& stream) {
  const Lanes d;
  const std::uint32_t* entries = table.entries();
  const Symbol* slots = table.slots<Symbol>();
  std::array<Vector, kVectors> x;
  for (std::size_t v = 0; v < kVectors; ++v) {
    x[v] = hn::LoadU(d, states + v * kWidth);
  }
  const std::uint8_t* next = stream.next;
  std::size_t round = 0;
  // Every vector loads as many words as it has lanes.
  for (; round < rounds && WordStream{next, stream.end}.words() >= kManyStates; ++round) {
    HWY_UNROLL(4)
    for (std::size_t v = 0; v < kVectors; ++v) {
      x[v] = decode_lanes(entries, slots, x[v], next, symbols + v * kWidth);
    }
    symbols += kManyStates;
  }
  for (std::size_t v = 0; v < kVectors; ++v) {
    hn::StoreU(x[v], d, states + v * kWidth);
  }
  stream.next = next;
  return round;
}

HWY_INLINE Vector high_products(Vector left, Vector right) {
  const hn::Repartition<std::uint64_t, Lanes> wide;
  const auto even = hn::MulEven(left, right);
  const auto odd = hn::MulEven(hn::BitCast(Lanes(), hn::ShiftRight<32>(hn::BitCast(wide, left))),
                               hn::BitCast(Lanes(), hn::ShiftRight<32>(hn::BitCast(wide, right))));
  return hn::OddEven(hn::BitCast(Lanes(), odd), hn::BitCast(Lanes(), hn::ShiftRight<32>(even)));
}

// x / frequency (LaneEntry): shift codes 14 and 15 mean shifts 13 and 0 with 1 added to x.
HWY_INLINE Vector quotients(Vector x, Vector reciprocal, Vector code) {
  const Lanes d;
  const auto adds = hn::Gt(hn::BitCast(SignedLanes(), code), hn::Set(SignedLanes(), 13));
  const Vector one = hn::BitCast(d, hn::VecFromMask(SignedLanes(), adds));  // minus one
  const Vector high = high_products(hn::Sub(x, one), reciprocal);
  const Vector shift = hn::IfThenZeroElse(hn::Eq(code, hn::Set(d, 15)), hn::Add(code, one));
  return hn::Shr(high, shift);
}

struct LaneEntries {
  Vector reciprocal;
  Vector packed;
};

template <typename Symbol>
HWY_INLINE LaneEntries look_up_entries(const LaneEntry* entries, const Symbol* symbols) {
  std::array<__m128i, kWidth / 4> reciprocals;
  std::array<__m128i, kWidth / 4> packed;
  const auto pair = [&](std::size_t i) {
    std::int64_t first;
    std::int64_t second;
    std::memcpy(&first, entries + symbols[i], sizeof(first));
    std::memcpy(&second, entries + symbols[i + 1], sizeof(second));
    return _mm_castsi128_ps(_mm_insert_epi64(_mm_cvtsi64_si128(first), second, 1));
  };
  for (std::size_t i = 0; i < kWidth; i += 4) {
    const __m128 low = pair(i);
    const __m128 high = pair(i + 2);
    reciprocals[i / 4] = _mm_castps_si128(_mm_shuffle_ps(low, high, _MM_SHUFFLE(2, 0, 2, 0)));
    packed[i / 4] = _mm_castps_si128(_mm_shuffle_ps(low, high, _MM_SHUFFLE(3, 1, 3, 1)));
  }
  return {join(reciprocals.data()), join(packed.data())};
}

// Puts a symbol into each lane of `x` after emitting the words that must go first.
template <typename Symbol>
HWY_INLINE Vector encode_lanes(const LaneEntry* entries, const Symbol* symbols, Vector x,
                               std::uint16_t*& words) {
  const Lanes d;
  const auto [reciprocal, packed] = look_up_entries(entries, symbols);
  const Vector mask14 = hn::Set(d, kProbabilityTotal - 1);
  const Vector frequency = hn::And(packed, mask14);
  const Vector start = hn::And(hn::ShiftRight<kProbabilityBits>(packed), mask14);
  // x < f << 18 exactly if x >> 18 < f; both sides are small, so a signed comparison works.
  const auto is_full = hn::Not(hn::MaskFromVec(hn::BitCast(
      d,
      hn::VecFromMask(SignedLanes(),
                      hn::Lt(hn::BitCast(SignedLanes(), hn::ShiftRight<32 - kProbabilityBits>(x)),
                             hn::BitCast(SignedLanes(), frequency))))));
  const unsigned marks = marks_of(is_full);
  store_words(hn::And(x, hn::Set(d, 0xFFFFU)), is_full, marks, words);
  words -= std::popcount(marks);
  x = hn::IfThenElse(is_full, hn::ShiftRight<16>(x), x);
  const Vector quotient = quotients(x, reciprocal, hn::ShiftRight<28>(packed));
  const Vector complement = hn::Sub(hn::Set(d, kProbabilityTotal), frequency);
  return hn::Add(hn::Add(x, start), hn::Mul(quotient, complement));
}

template <typename Symbol>
std::uint16_t* encode_rounds(const EncodeTable& table, const Symbol* symbols_end,
                             std::size_t rounds, std::uint32_t* states, std::uint16_t* words_end) {
  const Lanes d;
  std::array<Vector, kVectors> x;
  for (std::size_t v = 0; v < kVectors; ++v) {
    x[v] = hn::LoadU(d, states + v * kWidth);
  }
  const Symbol* symbols = symbols_end;
  for (; rounds > 0; --rounds) {
    symbols -= kManyStates;
    HWY_UNROLL(4)
    for (std::size_t v = kVectors; v-- > 0;) {
      x[v] = encode_lanes(table.lane_entries(), symbols + v * kWidth, x[v], words_end);
    }
  }
  for (std::size_t v = 0; v < kVectors; ++v) {
    hn::StoreU(x[v], d, states + v * kWidth);
  }
  return words_end;
}

const RansKernels* rans_table() {
  static constexpr RansKernels kTable = {
      .name = SPILLWAY_RANS_WIDE ? "avx512" : "avx2",
      .encode_bytes = encode_rounds<std::uint8_t>,
      .encode_words = encode_rounds<std::uint16_t>,
      .decode_bytes = decode_rounds<std::uint8_t>,
      .decode_words = decode_rounds<std::uint16_t>,
  };
  return &kTable;
}

#undef SPILLWAY_RANS_WIDE
#else

// A target that never runs (highway_rans_kernels()); it only has to compile.
const RansKernels* rans_table() {
  return &scalar_rans_kernels();
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace spillway::codec::entropy
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::codec::entropy {

HWY_EXPORT(rans_table);

std::vector<const RansKernels*> highway_rans_kernels() {
  std::vector<const RansKernels*> tables;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if ((target & (HWY_AVX2 | HWY_AVX3 | HWY_AVX3_DL)) == 0) {
      continue;
    }
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    const RansKernels* table = HWY_DYNAMIC_DISPATCH(rans_table)();
    if (tables.empty() || tables.back()->name != table->name) {
      tables.push_back(table);
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return tables;
}

}  // namespace spillway::codec::entropy
#endif
