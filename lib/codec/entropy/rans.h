// SPDX-License-Identifier: Apache-2.0
//
// The entropy coder's core: tables, the coding of single symbols, and kernels for many.
//
// The coder is rANS (Duda) with 32-bit states from 2^16 up, and 16-bit words. With f a symbol's
// frequency and c the sum of the frequencies before it:
//
//   encode   while x >= f << 18 emit the low word (at most once);  x = x/f << 14 | c + x%f
//   decode   slot = x mod 2^14 gives the symbol;  x = f * (x >> 14) + slot - c;
//            if x < 2^16 read a word
//
// encode_symbol() and decode_symbol() are this definition. Kernels do the same for whole rounds of
// kManyStates states; the scalar kernels are the oracle, and all others give the same bytes.
//
// Tables are values, read-only once made; nothing else has state. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "codec/entropy/probability_table.h"

namespace spillway::codec::entropy {

// ------------------------------------------------------------------ tables
//
// A probability table in the forms that the coder's inner loops read. A table is made once per
// direction, in some microseconds.
//
// Division is multiplication with a reciprocal, rounded so that the quotient is exact for every
// possible state. See ExactEntry for scalar code and LaneEntry for vectors.

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

// ------------------------------------------------------------------ kernels
//
// The inner loops, as a table of functions chosen once per process, like codec/kernels.h. Kernels
// do whole rounds: one symbol for each of kManyStates states, in the order of states. Remainders,
// and blocks with fewer states, are coded symbol by symbol. Nothing is allocated.

inline constexpr std::size_t kManyStates = 32;
inline constexpr std::size_t kFewStates = 4;
// Blocks with fewer values than this have kFewStates.
inline constexpr std::size_t kManyValues = std::size_t{1} << 15;

constexpr std::size_t states_for(std::size_t values) {
  return values < kManyValues ? kFewStates : kManyStates;
}

// The decoder's position in the words, which need not be aligned.
struct WordStream {
  const std::uint8_t* next;
  const std::uint8_t* end;

  std::size_t words() const { return static_cast<std::size_t>(end - next) / 2; }
};

struct RansKernels {
  std::string_view name;

  // Encodes the `rounds` * kManyStates symbols before `symbols_end`, last first. Words are written
  // below `words_end`, which needs room for one per symbol plus kSlackWords. Returns the lowest
  // word.
  std::uint16_t* (*encode_bytes)(const EncodeTable& table, const std::uint8_t* symbols_end,
                                 std::size_t rounds, std::uint32_t* states,
                                 std::uint16_t* words_end);
  std::uint16_t* (*encode_words)(const EncodeTable& table, const std::uint16_t* symbols_end,
                                 std::size_t rounds, std::uint32_t* states,
                                 std::uint16_t* words_end);

  // Decodes up to `rounds` rounds, as many as the stream certainly has words for, and returns their
  // number. The stream then points behind the last word taken. Nothing outside the stream is read.
  std::size_t (*decode_bytes)(const DecodeTable& table, std::uint8_t* symbols, std::size_t rounds,
                              std::uint32_t* states, WordStream& stream);
  std::size_t (*decode_words)(const DecodeTable& table, std::uint16_t* symbols, std::size_t rounds,
                              std::uint32_t* states, WordStream& stream);
};

// Vectors are stored whole, so some words beyond the results are written too.
inline constexpr std::size_t kSlackWords = 16;

// The oracle.
const RansKernels& scalar_rans_kernels();
// The fastest table for this CPU, or the one named by SPILLWAY_SIMD if the CPU can run it.
const RansKernels& best_rans_kernels();
// All tables that this CPU can run, fastest first; the scalar one is last.
const std::vector<const RansKernels*>& available_rans_kernels();
// Only for available_rans_kernels(): the vector tables that this CPU can run, fastest first. Exists
// only in x86 builds with Highway.
std::vector<const RansKernels*> highway_rans_kernels();

// ------------------------------------------------------------------ single symbols
//
// Scalar kernels, the ends of blocks and small blocks code one symbol at a time.

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
