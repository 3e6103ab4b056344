// SPDX-License-Identifier: Apache-2.0
//
// Moves, tags and optionally encrypts sections of packets in one pass
// (docs/adr/0014-packet-tags.md). A section is the unit that one tag covers: a header with the
// head's planes, a tail segment, or a control packet.
//
//   tag      the first 8 bytes of AES-128 under the tag key of POLYVAL(section) ^ nonce, after
//            RFC 8452; POLYVAL runs under the hash key over the section, padded with zeros to
//            whole blocks of 16 bytes
//   cipher   AES-128-CTR under the cipher key; counter block j is the nonce with its last four
//            bytes replaced by j, from 0. The tag covers the ciphertext.
//
// The caller must never use a nonce twice under one key for different sections. The nonce must
// encode the section's length and where its prefix ends, because the tag covers neither by itself.
// Nonces of encrypted sections must differ in their first 12 bytes.
//
// The scalar table is the oracle: every other table gives the same bytes and tags. None branches on
// secrets or uses them as table indices. Kernels allocate nothing and may run on any thread.
//
//   section_kernels.cc           chooses a table; the scalar table
//   section_kernels_highway.cc   the tables for processors with AES and carry-less products
//   portable_arithmetic.cc       AES-128 and POLYVAL in portable constant-time code: for the scalar
//                                table, and for expanding keys everywhere
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "wire/key.h"

namespace spillway::wire {

// ------------------------------------------------------------------ portable arithmetic

// AES-128 (FIPS 197) without tables, so that its time reveals nothing about key or data. Four
// blocks side by side are eight words, one for each bit of a byte.
inline constexpr std::size_t kAesBlock = 16;  // bytes; also the size of an AES-128 key
inline constexpr std::size_t kAesRounds = 10;
inline constexpr std::size_t kAesSideBySide = 4;

using AesBlock = std::array<std::uint8_t, kAesBlock>;
// The key of the initial addition, then one per round.
using AesRounds = std::array<AesBlock, kAesRounds + 1>;
using AesBlocks = std::array<AesBlock, kAesSideBySide>;

// `key` points to 16 bytes.
void expand_aes(const std::uint8_t* key, AesRounds& rounds);

void encrypt_aes(const AesRounds& rounds, AesBlocks& blocks);

inline constexpr std::size_t kPolyvalBlock = 16;  // bytes

// An element of POLYVAL's field (RFC 8452, section 3), as a polynomial over GF(2): bit i of the
// 128, least significant first, is the coefficient of x^i.
struct PolyvalElement {
  std::uint64_t low = 0;
  std::uint64_t high = 0;

  friend PolyvalElement operator^(PolyvalElement a, PolyvalElement b) {
    return {a.low ^ b.low, a.high ^ b.high};
  }
  friend bool operator==(PolyvalElement, PolyvalElement) = default;
};

inline PolyvalElement polyval_element(const std::uint8_t* bytes) {
  return {base::load_le<std::uint64_t>(bytes), base::load_le<std::uint64_t>(bytes + 8)};
}

// a * b / x^128 modulo x^128 + x^127 + x^126 + x^121 + 1: RFC 8452's dot.
PolyvalElement polyval_product(PolyvalElement a, PolyvalElement b);

// ------------------------------------------------------------------ keys and sections

// Expanded keys of one direction. Wiped on destruction.
struct alignas(64) SectionKeys {
  // Blocks in 2 KiB: a section up to this size has its hash reduced once, longer ones in steps.
  // More powers would cost more in first-level cache than the steps cost in time.
  static constexpr std::size_t kPowers = 128;

  // Powers of the hash key H, highest first: [kPowers - k] is H^k, low half first.
  std::array<std::array<std::uint64_t, 2>, kPowers> powers{};
  // The sum of the two halves of each power. One extra, because they are read in pairs.
  std::array<std::uint64_t, kPowers + 1> half_sums{};
  AesRounds tag{};
  AesRounds cipher{};
  bool encrypts = false;

  SectionKeys() = default;
  SectionKeys(const SectionKeys&) = default;
  SectionKeys& operator=(const SectionKeys&) = default;
  ~SectionKeys() { wipe({reinterpret_cast<std::uint8_t*>(this), sizeof *this}); }
};

// The key holds 16 bytes each for hash, tag and cipher. Takes microseconds.
void expand(const Key<48>& key, bool encrypts, SectionKeys& keys);

// No default initializers: callers fill in every section that they pass.
struct Section {
  // Tagged before the rest, but neither moved nor encrypted. A multiple of 16 bytes, or 0.
  const std::uint8_t* prefix;
  std::size_t prefix_bytes;
  // Source and destination are the same or do not overlap. Null `to`: the section is only tagged.
  const std::uint8_t* from;
  std::uint8_t* to;
  std::size_t bytes;
  std::array<std::uint8_t, 16> nonce;
};

// ------------------------------------------------------------------ tables of kernels

struct SectionKernels {
  // Maximum number of sections per call (the minimum is one); their tags are made together.
  static constexpr std::size_t kAtOnce = 4;

  const char* name;
  // Writes `to`. Tags cover the bytes written there, or `from` if `to` is null.
  void (*seal)(const SectionKeys& keys, const Section* sections, std::size_t count,
               std::uint64_t* tags);
  // Tags cover `from`. `to` gets the plaintext whether or not the tag turns out right.
  void (*open)(const SectionKeys& keys, const Section* sections, std::size_t count,
               std::uint64_t* tags);
};

// The fastest table for this CPU, or the one that SPILLWAY_SIMD names if it runs. Chosen once.
const SectionKernels& section_kernels();

// Every table that this CPU runs: the scalar one first, the fastest last.
std::span<const SectionKernels* const> all_section_kernels();

// Only for section_kernels.cc: the tables of section_kernels_highway.cc that this CPU runs, fastest
// last. Empty if it has no instructions for AES and carry-less products.
std::vector<const SectionKernels*> highway_section_kernels();

}  // namespace spillway::wire
