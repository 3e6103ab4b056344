// SPDX-License-Identifier: Apache-2.0
//
// The oracle: each step as its definition has it.
#include <algorithm>

#include "wire/polyval.h"
#include "wire/section_kernels_internal.h"

namespace spillway::wire {
namespace {

enum class Direction : std::uint8_t { kSeal, kOpen };

PolyvalElement hashed(PolyvalElement hash, PolyvalElement key, const std::uint8_t* bytes,
                      std::size_t count) {
  for (std::size_t at = 0; at < count; at += kPolyvalBlock) {
    AesBlock block{};
    std::copy_n(bytes + at, std::min(kPolyvalBlock, count - at), block.begin());
    hash = polyval_product(hash ^ polyval_element(block.data()), key);
  }
  return hash;
}

// The block that the tag key encrypts.
AesBlock tag_input(const SectionKeys& keys, const Section& section, const std::uint8_t* bytes) {
  const std::array<std::uint64_t, 2>& first_power = keys.powers.back();
  const PolyvalElement key = {first_power[0], first_power[1]};
  PolyvalElement hash = hashed({}, key, section.prefix, section.prefix_bytes);
  hash = hashed(hash, key, bytes, section.bytes) ^ polyval_element(section.nonce.data());
  AesBlock block;
  base::store_le(block.data(), hash.low);
  base::store_le(block.data() + sizeof hash.low, hash.high);
  return block;
}

// Four blocks of keystream, starting with block `first`.
AesBlocks key_stream(const SectionKeys& keys, const Section& section, std::size_t first) {
  constexpr std::size_t kCounterAt = 12;
  AesBlocks stream;
  for (std::size_t i = 0; i < stream.size(); ++i) {
    stream[i] = section.nonce;
    base::store_le(stream[i].data() + kCounterAt, static_cast<std::uint32_t>(first + i));
  }
  encrypt_aes(keys.cipher, stream);
  return stream;
}

void move_section(const SectionKeys& keys, const Section& section) {
  if (section.to == nullptr) {
    return;
  }
  if (!keys.encrypts) {
    if (section.to != section.from) {
      std::copy_n(section.from, section.bytes, section.to);
    }
    return;
  }
  AesBlocks stream;
  for (std::size_t at = 0; at < section.bytes; ++at) {
    const std::size_t block = at / kAesBlock;
    if (at % (kAesSideBySide * kAesBlock) == 0) {
      stream = key_stream(keys, section, block);
    }
    section.to[at] = section.from[at] ^ stream[block % kAesSideBySide][at % kAesBlock];
  }
}

template <Direction kDirection>
void run_sections(const SectionKeys& keys, const Section* sections, std::size_t count,
                  std::uint64_t* tags) {
  AesBlocks blocks{};
  for (std::size_t i = 0; i < count; ++i) {
    const Section& section = sections[i];
    if constexpr (kDirection == Direction::kSeal) {
      move_section(keys, section);
      blocks[i] = tag_input(keys, section, section.to != nullptr ? section.to : section.from);
    } else {
      blocks[i] = tag_input(keys, section, section.from);
      move_section(keys, section);
    }
  }
  encrypt_aes(keys.tag, blocks);
  for (std::size_t i = 0; i < count; ++i) {
    tags[i] = base::load_le<std::uint64_t>(blocks[i].data());
  }
}

}  // namespace

const SectionKernels& scalar_section_kernels() {
  static constexpr SectionKernels kTable = {.name = "scalar",
                                            .seal = run_sections<Direction::kSeal>,
                                            .open = run_sections<Direction::kOpen>};
  return kTable;
}

}  // namespace spillway::wire
