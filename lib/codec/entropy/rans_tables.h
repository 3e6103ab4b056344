// SPDX-License-Identifier: Apache-2.0
//
// A probability table in the forms that the coder's inner loops read. Made once per table and
// direction, in some microseconds, and read-only afterwards.
//
// The coder is rANS (Duda) with 32-bit states from 2^16 up, and 16-bit words. With f a symbol's
// frequency and c the sum of the frequencies before it:
//
//   encode   while x >= f << 18 emit the low word (at most once);  x = x/f << 14 | c + x%f
//   decode   slot = x mod 2^14 gives the symbol;  x = f * (x >> 14) + slot - c;
//            if x < 2^16 read a word
//
// Division is multiplication with a reciprocal, rounded so that the quotient is exact for every
// possible state. See ExactEntry for scalar code and LaneEntry for vectors.
//
// Values; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codec/entropy/probability_table.h"

namespace spillway::codec::entropy {

inline constexpr std::uint32_t kStateMin = 1U << 16;

// One symbol of the encoder: x/f is high64(x * r) with r = 2^64 / f rounded up, because x < 2^32.
// For f = 1 that is one bit too long: r = 2^64 - 1 gives x - 1, and the bias corrects it.
struct ExactEntry {
  std::uint64_t reciprocal;
  std::uint32_t bias;  // c; for f = 1, 2^14 - 1 more
  std::uint32_t frequency;
};

// The same for 32-bit lanes. x < f * 2^18 <= 2^32, so x/f is high32((x + a) * r) >> s. Here r =
// 2^(32+s) / f is rounded up (a = 0) or down (a = 1), whichever error is smaller. That error is at
// most f/2, and f/2 * x < 2^(32+s).
//
// `packed` is frequency | start << 14 | shift code << 28. Shift codes 0 .. 13 are shifts with a =
// 0. Code 14 means shift 13 with a = 1; code 15 means shift 0 with a = 1 (frequency 1).
struct LaneEntry {
  std::uint32_t reciprocal;
  std::uint32_t packed;
};

class EncodeTable {
 public:
  explicit EncodeTable(ProbabilityTable table);

  const ProbabilityTable& probabilities() const { return table_; }
  // Indexed by symbol; symbols with frequency 0 have the escape's entry.
  const ExactEntry* entries() const { return entries_.data(); }
  const LaneEntry* lane_entries() const { return lane_entries_.data(); }
  // The cost of a natural symbol in 1/256 bit, with raw bits.
  std::span<const std::uint32_t> costs_q8() const { return costs_q8_; }

 private:
  ProbabilityTable table_;
  std::vector<ExactEntry> entries_;
  std::vector<LaneEntry> lane_entries_;
  std::vector<std::uint32_t> costs_q8_;
};

// The folded values of a symbol: `first` plus a number of `bits` raw bits.
struct SymbolRange {
  std::uint32_t first;
  std::uint32_t bits;
};

class DecodeTable {
 public:
  explicit DecodeTable(ProbabilityTable table);

  const ProbabilityTable& probabilities() const { return table_; }
  // Indexed by symbol: frequency | start << 16.
  const std::uint32_t* entries() const { return entries_.data(); }
  // The symbol of each slot: bytes if the alphabet has at most 256 symbols, else 16 bits. Vectors
  // may gather 32 bits at any slot without leaving the array.
  template <typename Symbol>
  const Symbol* slots() const;
  const SymbolRange* ranges() const { return ranges_.data(); }
  bool has_byte_symbols() const { return table_.alphabet().symbols() <= 256; }

 private:
  ProbabilityTable table_;
  std::vector<std::uint32_t> entries_;
  std::vector<SymbolRange> ranges_;
  std::vector<std::uint8_t> byte_slots_;
  std::vector<std::uint16_t> word_slots_;
};

template <>
inline const std::uint8_t* DecodeTable::slots<std::uint8_t>() const {
  return byte_slots_.data();
}

template <>
inline const std::uint16_t* DecodeTable::slots<std::uint16_t>() const {
  return word_slots_.data();
}

}  // namespace spillway::codec::entropy
