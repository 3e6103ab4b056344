// SPDX-License-Identifier: Apache-2.0
//
// The kernels on Highway: this file and section_arithmetic-inl.h, compiled once for each
// instruction set that has AES and carry-less products. Products dominate the time. Copies are
// therefore free, and the cipher overlaps, because it has its own execution unit.
//
// SVE machines use the NEON table, because SVE vectors cannot be class members.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "wire/section_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "wire/section_kernels_highway.cc"
#define HWY_WANT_AVX3_DL  // for four blocks in one vector
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_SSSE3)
#include <hwy/foreach_target.h>  // NOLINT: Highway includes this file again for each target
// This header depends on foreach_target.h and must follow it.
#include "wire/section_arithmetic-inl.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::wire {
namespace HWY_NAMESPACE {

const SectionKernels* section_table();

#ifdef SPILLWAY_SECTION_TARGET
namespace {

// How a section's bytes are processed. All modes make the tag; kTagOnly writes nothing.
enum class Mode : std::uint8_t { kTagOnly, kCopy, kSeal, kOpen };

// ------------------------------------------------------------------ ranges of a section

// Bytes [at, end) of a section's moved or tagged bytes: at most kPowers blocks.
struct ByteRange {
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

template <std::size_t kBlocks, Mode kMode>
HWY_INLINE void fetch_ahead(const ByteRange& range) {
  for (std::size_t at = kAhead; at < kAhead + kGroup<kBlocks>; at += kCacheLine) {
    __builtin_prefetch(range.source() + at);
    if constexpr (kMode == Mode::kCopy) {
      __builtin_prefetch(range.target() + at, 1);
    }
  }
}

template <std::size_t kBlocks, Mode kMode>
HWY_INLINE void plain_groups(ByteRange& range, Hash& hash) {
  while (range.left() >= kGroup<kBlocks>) {
    const Four<kBlocks> text = load_four<kBlocks>(range.source());
    fetch_ahead<kBlocks, kMode>(range);
    if constexpr (kBlocks == 1) {
      add_four_at(range.source(), text, hash);
    } else {
      add_four<kBlocks>(text, hash);
    }
    if constexpr (kMode == Mode::kCopy) {
      store_four<kBlocks>(text, range.target());
    }
    range.at += kGroup<kBlocks>;
  }
}

template <Mode kMode>
HWY_INLINE void plain_rest(ByteRange& range, Hash& hash) {
  const VectorTags<1>::Bytes d;
  while (range.left() >= kBlock) {
    const ByteVec<1> text = hn::LoadU(d, range.source());
    hash.add(words_of<1>(text));
    if constexpr (kMode == Mode::kCopy) {
      hn::StoreU(text, d, range.target());
    }
    range.at += kBlock;
  }
  if (range.left() > 0) {
    hash.add(words_of<1>(load_short(range.source(), range.left())));
    if constexpr (kMode == Mode::kCopy) {
      copy_short(range.source(), range.left(), range.target());
    }
  }
}

template <std::size_t kBlocks, Mode kMode>
HWY_INLINE void cipher_groups(const SectionKeys& keys, const Section& section, ByteRange& range,
                              Hash& hash) {
  KeyStream<kBlocks> stream(keys, section, range.at / kBlock);
  while (range.left() >= kGroup<kBlocks>) {
    const Four<kBlocks> text = load_four<kBlocks>(range.source());
    const Four<kBlocks> other = sum_of<kBlocks>(text, stream.next());
    add_four<kBlocks>(kMode == Mode::kSeal ? other : text, hash);
    store_four<kBlocks>(other, range.target());
    range.at += kGroup<kBlocks>;
  }
}

// Processes the last bytes, less than a group.
template <Mode kMode>
HWY_INLINE void cipher_rest(const SectionKeys& keys, const Section& section, ByteRange& range,
                            Hash& hash) {
  if (range.left() == 0) {
    return;
  }
  const VectorTags<1>::Bytes d;
  alignas(16) std::uint8_t stream[kGroup<1>];
  store_four<1>(KeyStream<1>(keys, section, range.at / kBlock).next(), stream);
  const std::uint8_t* next = stream;
  for (; range.left() >= kBlock; next += kBlock) {
    const ByteVec<1> text = hn::LoadU(d, range.source());
    const ByteVec<1> other = hn::Xor(text, hn::Load(d, next));
    hash.add(words_of<1>(kMode == Mode::kSeal ? other : text));
    hn::StoreU(other, d, range.target());
    range.at += kBlock;
  }
  if (range.left() > 0) {
    const ByteVec<1> text = load_short(range.source(), range.left());
    const ByteVec<1> other = hn::Xor(text, hn::Load(d, next));
    const ByteVec<1> padded = hn::IfThenElseZero(hn::FirstN(d, range.left()), other);
    hash.add(words_of<1>(kMode == Mode::kSeal ? padded : text));
    hn::Store(other, d, stream);
    copy_short(stream, range.left(), range.target());
  }
}

template <Mode kMode>
HWY_INLINE void process_range(const SectionKeys& keys, const Section& section, ByteRange range,
                              Hash& hash) {
  if constexpr (kMode == Mode::kTagOnly || kMode == Mode::kCopy) {
    if constexpr (kWidth > 1) {
      plain_groups<kWidth, kMode>(range, hash);
    }
    plain_groups<1, kMode>(range, hash);
    plain_rest<kMode>(range, hash);
  } else {
    if constexpr (kWidth > 1) {
      cipher_groups<kWidth, kMode>(keys, section, range, hash);
    }
    cipher_groups<1, kMode>(keys, section, range, hash);
    cipher_rest<kMode>(keys, section, range, hash);
  }
}

// ------------------------------------------------------------------ sections

// A section of more blocks than there are powers is processed in runs that end at group boundaries.
template <Mode kMode>
HWY_NOINLINE void process_section(const SectionKeys& keys, const Section& section,
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
    process_range<Mode::kTagOnly>(keys, section, {section.prefix, nullptr, at, at + count}, hash);
  }
  for (std::size_t at = 0; at < section.bytes; at += kRun) {
    const std::size_t count = std::min(kRun, section.bytes - at);
    if (!is_short) {
      hash.begin((count + kBlock - 1) / kBlock);
    }
    process_range<kMode>(keys, section, {section.from, section.to, at, at + count}, hash);
  }
  products = hash.products();
}

HWY_INLINE ByteVec<1> tag_input(const Section& section, const Products<1>& products) {
  const VectorTags<1>::Bytes d;
  return hn::Xor(hn::BitCast(d, reduced(products)), hn::LoadU(d, section.nonce.data()));
}

// Always reduces and encrypts four sums, even for fewer sections: four take as long as one.
template <Mode kCipher>
void process_sections(const SectionKeys& keys, const Section* sections, std::size_t count,
                      std::uint64_t* tags) {
  Products<1> sums[SectionKernels::kAtOnce];
  for (std::size_t i = 0; i < count; ++i) {
    const Section& section = sections[i];
    if (section.to == nullptr || (!keys.encrypts && section.to == section.from)) {
      process_section<Mode::kTagOnly>(keys, section, sums[i]);
    } else if (keys.encrypts) {
      process_section<kCipher>(keys, section, sums[i]);
    } else {
      process_section<Mode::kCopy>(keys, section, sums[i]);
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
                                            .seal = process_sections<Mode::kSeal>,
                                            .open = process_sections<Mode::kOpen>};
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
