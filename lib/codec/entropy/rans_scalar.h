// SPDX-License-Identifier: Apache-2.0
//
// Codes one symbol at a time. This is the definition of the coder (rans_tables.h); scalar kernels,
// the ends of blocks and small blocks use it. Header-only.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "codec/entropy/rans_kernels.h"
#include "codec/entropy/rans_tables.h"

namespace spillway::codec::entropy {

// The upper 64 bits of a product.
inline std::uint64_t high_product(std::uint64_t left, std::uint64_t right) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>(Wide{left} * right >> 64);
}

// Puts a symbol into `state`; if a word must be emitted, it is written below `words`.
inline void encode_symbol(const ExactEntry& entry, std::uint32_t& state, std::uint16_t*& words) {
  const std::uint32_t x = state;
  // As in refill().
  const std::uint64_t is_full =
      (std::uint64_t{entry.frequency} - 1 - (x >> (32 - kProbabilityBits))) >> 63;
  words[-1] = static_cast<std::uint16_t>(x);
  words -= is_full;
  const std::uint32_t kept = x ^ ((x ^ x >> 16) & static_cast<std::uint32_t>(0U - is_full));
  const auto quotient = static_cast<std::uint32_t>(high_product(kept, entry.reciprocal));
  state = kept + entry.bias + quotient * (kProbabilityTotal - entry.frequency);
}

// Takes a symbol out of `state`, which may then need a word; see refill().
template <typename Symbol>
Symbol decode_symbol(const std::uint32_t* entries, const Symbol* slots, std::uint32_t& state) {
  const std::uint32_t slot = state & (kProbabilityTotal - 1);
  const Symbol symbol = slots[slot];
  const std::uint32_t entry = entries[symbol];
  state = (entry & 0xFFFFU) * (state >> kProbabilityBits) + slot - (entry >> 16);
  return symbol;
}

// The stream must have at least one word.
inline void refill(std::uint32_t& state, WordStream& stream) {
  const std::uint32_t word = base::load_le<std::uint16_t>(stream.next);
  // Without branches, because whether a word is needed is unpredictable. The sign of a difference
  // keeps compilers from turning it into a branch.
  const std::uint64_t is_short = (std::uint64_t{state} - kStateMin) >> 63;
  state ^= (state ^ (state << 16 | word)) & static_cast<std::uint32_t>(0U - is_short);
  stream.next += 2 * is_short;
}

}  // namespace spillway::codec::entropy
