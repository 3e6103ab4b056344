// SPDX-License-Identifier: Apache-2.0
#include "wire/section_kernels.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/environment.h"

namespace spillway::wire {
namespace {

// ------------------------------------------------------------------ the scalar table
// Each step follows its definition, because the other tables are compared with this one.

enum class Mode : std::uint8_t { kSeal, kOpen };

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

void copy_section(const SectionKeys& keys, const Section& section) {
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

template <Mode kMode>
void process_sections(const SectionKeys& keys, const Section* sections, std::size_t count,
                      std::uint64_t* tags) {
  AesBlocks blocks{};
  for (std::size_t i = 0; i < count; ++i) {
    const Section& section = sections[i];
    if constexpr (kMode == Mode::kSeal) {
      copy_section(keys, section);
      blocks[i] = tag_input(keys, section, section.to != nullptr ? section.to : section.from);
    } else {
      blocks[i] = tag_input(keys, section, section.from);
      copy_section(keys, section);
    }
  }
  encrypt_aes(keys.tag, blocks);
  for (std::size_t i = 0; i < count; ++i) {
    tags[i] = base::load_le<std::uint64_t>(blocks[i].data());
  }
}

constexpr SectionKernels kScalarKernels = {
    .name = "scalar", .seal = process_sections<Mode::kSeal>, .open = process_sections<Mode::kOpen>};

// ------------------------------------------------------------------ choosing a table

std::vector<const SectionKernels*> find_section_kernels() {
  std::vector<const SectionKernels*> tables = {&kScalarKernels};
#ifdef SPILLWAY_HAVE_HIGHWAY
  const std::vector<const SectionKernels*> quick = highway_section_kernels();
  tables.insert(tables.end(), quick.begin(), quick.end());
#endif
  return tables;
}

// Takes the fastest table whose name starts with SPILLWAY_SIMD, so "avx512" may choose
// "avx512-vaes".
const SectionKernels& choose_section_kernels() {
  const auto wanted = base::Environment::of_process().checked_text("SPILLWAY_SIMD");
  const std::span<const SectionKernels* const> tables = all_section_kernels();
  for (auto table = tables.rbegin(); table != tables.rend(); ++table) {
    if (wanted.ok() && !wanted->empty() && std::string_view((*table)->name).starts_with(*wanted)) {
      return **table;
    }
  }
  return *tables.back();
}

}  // namespace

std::span<const SectionKernels* const> all_section_kernels() {
  static const std::vector<const SectionKernels*> tables = find_section_kernels();
  return tables;
}

const SectionKernels& section_kernels() {
  static const SectionKernels& chosen = choose_section_kernels();
  return chosen;
}

void expand(const Key<48>& key, bool encrypts, SectionKeys& keys) {
  constexpr std::size_t kAesKeySize = 16;
  constexpr std::size_t kHashKeyAt = 0;
  constexpr std::size_t kTagKeyAt = kHashKeyAt + kPolyvalBlock;
  constexpr std::size_t kCipherKeyAt = kTagKeyAt + kAesKeySize;
  const PolyvalElement hash_key = polyval_element(key.bytes.data() + kHashKeyAt);
  PolyvalElement power = hash_key;
  for (std::size_t i = SectionKeys::kPowers; i-- > 0;) {
    keys.powers[i] = {power.low, power.high};
    keys.half_sums[i] = power.low ^ power.high;
    power = polyval_product(power, hash_key);
  }
  expand_aes(key.bytes.data() + kTagKeyAt, keys.tag);
  expand_aes(key.bytes.data() + kCipherKeyAt, keys.cipher);
  keys.encrypts = encrypts;
}

}  // namespace spillway::wire
