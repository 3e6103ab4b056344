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
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/key.h"
#include "wire/sliced_aes.h"

namespace spillway::wire {

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

}  // namespace spillway::wire
