// SPDX-License-Identifier: Apache-2.0
//
// AES-128 on vectors, four at a time to hide the latency of the instruction.
#include <array>
#include <cstring>

#include "wire/section_kernels.h"

#if defined(SPILLWAY_WIRE_SECTION_CIPHER_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SPILLWAY_WIRE_SECTION_CIPHER_INL_H
#undef SPILLWAY_WIRE_SECTION_CIPHER_INL_H
#else
#define SPILLWAY_WIRE_SECTION_CIPHER_INL_H
#endif

#include "wire/section_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::wire {
namespace HWY_NAMESPACE {
#ifdef SPILLWAY_SECTION_TARGET
namespace {

template <std::size_t kBlocks>
HWY_INLINE ByteVec<kBlocks> round_key(const AesRounds& rounds, std::size_t round) {
  return hn::LoadDup128(typename Lanes<kBlocks>::Bytes(), rounds[round].data());
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
  static constexpr typename Lanes<kBlocks>::Counts kCounts{};

  HWY_INLINE ByteVec<kBlocks> take() {
    const CountVec<kBlocks> now = next_;
    next_ = hn::Add(now, hn::LoadDup128(kCounts, kStep<kBlocks>.data()));
    return hn::BitCast(typename Lanes<kBlocks>::Bytes(), now);
  }

  const AesRounds& rounds_;
  CountVec<kBlocks> next_;
};

}  // namespace
#endif
}  // namespace HWY_NAMESPACE
}  // namespace spillway::wire
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
