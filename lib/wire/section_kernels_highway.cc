// SPDX-License-Identifier: Apache-2.0
//
// The kernels on Highway: this file and the -inl.h files it includes, compiled once for each
// instruction set that has AES and carry-less products. Products dominate the time. Copies are
// therefore free, and the cipher, which has its own execution unit, overlaps.
//
// SVE machines use the NEON table, because SVE vectors cannot be class members.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "wire/section_kernels_internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "wire/section_kernels_highway.cc"
#define HWY_WANT_AVX3_DL  // for four blocks in one vector
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_SSSE3)
#include <hwy/foreach_target.h>  // NOLINT: Highway includes this file again for each target
// These headers depend on foreach_target.h and must follow it.
#include "wire/section_cipher-inl.h"
#include "wire/section_hash-inl.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::wire {
namespace HWY_NAMESPACE {

const SectionKernels* section_table();

#ifdef SPILLWAY_SECTION_TARGET
namespace {

// How a section's bytes are processed.
enum class Work : std::uint8_t { kLook, kCopy, kSeal, kOpen };

// ------------------------------------------------------------------ pieces of a section

// Bytes [at, end) of a section's moved or tagged bytes: at most kPowers blocks.
struct Piece {
  const std::uint8_t* from;
  std::uint8_t* to;  // null if the bytes are only tagged
  std::size_t at;
  std::size_t end;

  HWY_INLINE const std::uint8_t* source() const { return from + at; }
  HWY_INLINE std::uint8_t* target() const { return to + at; }
  HWY_INLINE std::size_t left() const { return end - at; }
};

template <std::size_t kBlocks>
constexpr std::size_t kGroup = 4 * kBlock* kBlocks;  // bytes processed at once

// A tensor's bytes are in no cache when its packets are written, and neither is their destination
// when packets arrive. Consecutive packets are adjacent in both. So we prefetch this many bytes
// ahead, even beyond the section's end: a prefetch is a hint and cannot fault.
constexpr std::size_t kAhead = 1024;
constexpr std::size_t kCacheLine = 64;

template <std::size_t kBlocks, Work kWork>
HWY_INLINE void fetch_ahead(const Piece& piece) {
  for (std::size_t at = kAhead; at < kAhead + kGroup<kBlocks>; at += kCacheLine) {
    __builtin_prefetch(piece.source() + at);
    if constexpr (kWork == Work::kCopy) {
      __builtin_prefetch(piece.target() + at, 1);
    }
  }
}

template <std::size_t kBlocks, Work kWork>
HWY_INLINE void plain_groups(Piece& piece, Hash& hash) {
  while (piece.left() >= kGroup<kBlocks>) {
    const Four<kBlocks> text = load_four<kBlocks>(piece.source());
    fetch_ahead<kBlocks, kWork>(piece);
    if constexpr (kBlocks == 1) {
      add_four_at(piece.source(), text, hash);
    } else {
      add_four<kBlocks>(text, hash);
    }
    if constexpr (kWork == Work::kCopy) {
      store_four<kBlocks>(text, piece.target());
    }
    piece.at += kGroup<kBlocks>;
  }
}

template <Work kWork>
HWY_INLINE void plain_rest(Piece& piece, Hash& hash) {
  const Lanes<1>::Bytes d;
  while (piece.left() >= kBlock) {
    const ByteVec<1> text = hn::LoadU(d, piece.source());
    hash.add(words_of<1>(text));
    if constexpr (kWork == Work::kCopy) {
      hn::StoreU(text, d, piece.target());
    }
    piece.at += kBlock;
  }
  if (piece.left() > 0) {
    hash.add(words_of<1>(load_short(piece.source(), piece.left())));
    if constexpr (kWork == Work::kCopy) {
      copy_short(piece.source(), piece.left(), piece.target());
    }
  }
}

template <std::size_t kBlocks, Work kWork>
HWY_INLINE void cipher_groups(const SectionKeys& keys, const Section& section, Piece& piece,
                              Hash& hash) {
  KeyStream<kBlocks> stream(keys, section, piece.at / kBlock);
  while (piece.left() >= kGroup<kBlocks>) {
    const Four<kBlocks> text = load_four<kBlocks>(piece.source());
    const Four<kBlocks> other = sum_of<kBlocks>(text, stream.next());
    add_four<kBlocks>(kWork == Work::kSeal ? other : text, hash);
    store_four<kBlocks>(other, piece.target());
    piece.at += kGroup<kBlocks>;
  }
}

// Processes the last bytes, less than a group.
template <Work kWork>
HWY_INLINE void cipher_rest(const SectionKeys& keys, const Section& section, Piece& piece,
                            Hash& hash) {
  if (piece.left() == 0) {
    return;
  }
  const Lanes<1>::Bytes d;
  alignas(16) std::uint8_t stream[kGroup<1>];
  store_four<1>(KeyStream<1>(keys, section, piece.at / kBlock).next(), stream);
  const std::uint8_t* next = stream;
  for (; piece.left() >= kBlock; next += kBlock) {
    const ByteVec<1> text = hn::LoadU(d, piece.source());
    const ByteVec<1> other = hn::Xor(text, hn::Load(d, next));
    hash.add(words_of<1>(kWork == Work::kSeal ? other : text));
    hn::StoreU(other, d, piece.target());
    piece.at += kBlock;
  }
  if (piece.left() > 0) {
    const ByteVec<1> text = load_short(piece.source(), piece.left());
    const ByteVec<1> other = hn::Xor(text, hn::Load(d, next));
    const ByteVec<1> padded = hn::IfThenElseZero(hn::FirstN(d, piece.left()), other);
    hash.add(words_of<1>(kWork == Work::kSeal ? padded : text));
    hn::Store(other, d, stream);
    copy_short(stream, piece.left(), piece.target());
  }
}

template <Work kWork>
HWY_INLINE void do_piece(const SectionKeys& keys, const Section& section, Piece piece, Hash& hash) {
  if constexpr (kWork == Work::kLook || kWork == Work::kCopy) {
    if constexpr (kWidth > 1) {
      plain_groups<kWidth, kWork>(piece, hash);
    }
    plain_groups<1, kWork>(piece, hash);
    plain_rest<kWork>(piece, hash);
  } else {
    if constexpr (kWidth > 1) {
      cipher_groups<kWidth, kWork>(keys, section, piece, hash);
    }
    cipher_groups<1, kWork>(keys, section, piece, hash);
    cipher_rest<kWork>(keys, section, piece, hash);
  }
}

// ------------------------------------------------------------------ sections

// A section of more blocks than there are powers is processed in runs that end at group boundaries.
template <Work kWork>
HWY_NOINLINE void do_section(const SectionKeys& keys, const Section& section,
                             Products<1>& products) {
  constexpr std::size_t kRun = SectionKeys::kPowers * kBlock;
  const std::size_t blocks = (section.prefix_bytes + section.bytes + kBlock - 1) / kBlock;
  const bool is_short = blocks <= SectionKeys::kPowers;
  Hash hash(keys);
  if (is_short) {
    hash.begin(blocks);
  }
  for (std::size_t at = 0; at < section.prefix_bytes; at += kRun) {
    const std::size_t count = std::min(kRun, section.prefix_bytes - at);
    if (!is_short) {
      hash.begin(count / kBlock);
    }
    do_piece<Work::kLook>(keys, section, {section.prefix, nullptr, at, at + count}, hash);
  }
  for (std::size_t at = 0; at < section.bytes; at += kRun) {
    const std::size_t count = std::min(kRun, section.bytes - at);
    if (!is_short) {
      hash.begin((count + kBlock - 1) / kBlock);
    }
    do_piece<kWork>(keys, section, {section.from, section.to, at, at + count}, hash);
  }
  products = hash.products();
}

HWY_INLINE ByteVec<1> tag_input(const Section& section, const Products<1>& products) {
  const Lanes<1>::Bytes d;
  return hn::Xor(hn::BitCast(d, reduced(products)), hn::LoadU(d, section.nonce.data()));
}

// Always reduces and encrypts four sums, even for fewer sections: four take as long as one.
template <Work kCipher>
void do_sections(const SectionKeys& keys, const Section* sections, std::size_t count,
                 std::uint64_t* tags) {
  Products<1> sums[SectionKernels::kAtOnce];
  for (std::size_t i = 0; i < count; ++i) {
    const Section& section = sections[i];
    if (section.to == nullptr || (!keys.encrypts && section.to == section.from)) {
      do_section<Work::kLook>(keys, section, sums[i]);
    } else if (keys.encrypts) {
      do_section<kCipher>(keys, section, sums[i]);
    } else {
      do_section<Work::kCopy>(keys, section, sums[i]);
    }
  }
  const auto input = [&](std::size_t i) HWY_ATTR {
    const std::size_t which = std::min(i, count - 1);
    return tag_input(sections[which], sums[which]);
  };
  alignas(16) std::uint8_t blocks[SectionKernels::kAtOnce * kBlock];
  store_four<1>(encrypt<1>(keys.tag, {input(0), input(1), input(2), input(3)}), blocks);
  for (std::size_t i = 0; i < count; ++i) {
    tags[i] = base::load_le<std::uint64_t>(blocks + i * kBlock);
  }
}

}  // namespace

const SectionKernels* section_table() {
  static constexpr SectionKernels kTable = {.name = SPILLWAY_SECTION_TARGET,
                                            .seal = do_sections<Work::kSeal>,
                                            .open = do_sections<Work::kOpen>};
  return &kTable;
}

#else

const SectionKernels* section_table() {
  return nullptr;
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace spillway::wire
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::wire {

// Tables are named explicitly, because Highway's dispatch finds one table, not all of them.
std::vector<const SectionKernels*> highway_section_kernels() {
  const std::int64_t supported = hwy::SupportedTargets();
  std::vector<const SectionKernels*> tables;
  const auto add = [&](std::int64_t target, const SectionKernels* table) {
    if ((supported & target) != 0 && table != nullptr) {
      tables.push_back(table);
    }
  };
#if HWY_TARGETS & HWY_NEON
  add(HWY_NEON, N_NEON::section_table());
#endif
#if HWY_TARGETS & HWY_SSE4
  add(HWY_SSE4, N_SSE4::section_table());
#endif
#if HWY_TARGETS & HWY_AVX2
  add(HWY_AVX2, N_AVX2::section_table());
#endif
#if HWY_TARGETS & HWY_AVX3
  add(HWY_AVX3, N_AVX3::section_table());
#endif
#if HWY_TARGETS & HWY_AVX3_DL
  add(HWY_AVX3_DL, N_AVX3_DL::section_table());
#endif
  return tables;
}

}  // namespace spillway::wire
#endif
