// SPDX-License-Identifier: Apache-2.0
//
// Sections of packets, moved, tagged and, if the keys say so, encrypted in one pass
// (docs/adr/0014-packet-tags.md). A section is what a tag is of: a header with the head's planes, a
// tail segment, a control packet.
//
//   tag      the first 8 bytes of AES-128 under the tag key of POLYVAL(section) ^ nonce, after
//            RFC 8452; POLYVAL under the hash key, of the section filled up with zeros to whole
//            blocks of 16 bytes
//   cipher   AES-128-CTR under the cipher key; counter block j is the nonce with its last four
//            bytes replaced by j, from 0. The tag is over what is encrypted.
//
// What a caller owes: no nonce twice under one key for different sections; it names the section's
// bytes and where its prefix ends, for neither is under the tag by itself; and of sections that are
// encrypted, the first 12 bytes already differ.
//
// The scalar table is the oracle: every other one gives the same bytes and tags. None branches on,
// or looks up by, what is secret. Kernels allocate nothing and may run on any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/key.h"
#include "wire/sliced_aes.h"

namespace spillway::wire {

// Of one direction, ready for use. Wiped when it goes.
struct alignas(64) SectionKeys {
  // Blocks of a section of 2 KiB: its hash is then reduced once. Longer ones are done in steps.
  // More would take more of the first-level cache than the steps take time.
  static constexpr std::size_t kPowers = 128;

  // Of the hash key H, the highest first: [kPowers - k] is H^k, its low half first.
  std::array<std::array<std::uint64_t, 2>, kPowers> powers{};
  // The sums of the two halves of each; one more, because they are read in pairs.
  std::array<std::uint64_t, kPowers + 1> half_sums{};
  AesRounds tag{};
  AesRounds cipher{};
  bool encrypts = false;

  SectionKeys() = default;
  SectionKeys(const SectionKeys&) = default;
  SectionKeys& operator=(const SectionKeys&) = default;
  ~SectionKeys() { wipe({reinterpret_cast<std::uint8_t*>(this), sizeof *this}); }
};

// The key is 16 bytes each for hash, tag and cipher. Takes microseconds.
void expand(const Key<48>& key, bool encrypts, SectionKeys& keys);

// Without defaults: whoever hands over four at a time fills them in.
struct Section {
  // Under the tag before the rest, but neither moved nor encrypted; a multiple of 16 bytes, or 0.
  const std::uint8_t* prefix;
  std::size_t prefix_bytes;
  // Moved: the two are the same or do not overlap. Without `to`, it is only looked at.
  const std::uint8_t* from;
  std::uint8_t* to;
  std::size_t bytes;
  std::array<std::uint8_t, 16> nonce;
};

struct SectionKernels {
  // Sections that one call takes at most, and at least one; their tags are made together.
  static constexpr std::size_t kAtOnce = 4;

  const char* name;
  // Writes `to`; tags are over what was written there, or over `from` where there is no `to`.
  void (*seal)(const SectionKeys& keys, const Section* sections, std::size_t count,
               std::uint64_t* tags);
  // Tags are over `from`; `to` gets the plain bytes, whether the tag turns out right or not.
  void (*open)(const SectionKeys& keys, const Section* sections, std::size_t count,
               std::uint64_t* tags);
};

// The fastest this CPU has, or the one that SPILLWAY_SIMD names if it has that. Decided once.
const SectionKernels& section_kernels();

// Every table this CPU runs: the scalar one first, the fastest last.
std::span<const SectionKernels* const> all_section_kernels();

}  // namespace spillway::wire
