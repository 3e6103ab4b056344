// SPDX-License-Identifier: Apache-2.0
//
// Integers as symbols for the entropy coder. A value v is first folded, small magnitudes first (0,
// -1, 1, -2, ... become 0, 1, 2, 3, ...):
//
//   direct(A)   folded values 0 .. A-2 are symbols of their own
//   ranges()    folded values 0 .. 7 are symbols. Each octave above has four symbols, and the
//   offset
//               within the symbol's range follows as raw bits. That is 124 symbols for all 32-bit
//               values, about forty for sums of 8-bit numbers. Raw offsets cost little, because
//               gradients are smooth.
//
// The last symbol of either is the escape: the folded value follows in 32 raw bits. It covers
// values without a symbol in a table, so every value has a code under every table.
//
// Statistics count natural symbols: the symbol of a value whatever the table. Only values beyond a
// direct alphabet have the escape as their natural symbol.
//
// A value; any thread.
#pragma once

#include <bit>
#include <cstdint>

#include "base/status.h"

namespace spillway::codec::entropy {

// Enough for 12-bit sums; for more symbols use ranges.
inline constexpr unsigned kMaxSymbols = 1U << 12;
inline constexpr unsigned kEscapeBits = 32;

constexpr std::uint32_t fold(std::int32_t value) {
  return static_cast<std::uint32_t>(value) << 1 ^ static_cast<std::uint32_t>(value >> 31);
}

constexpr std::int32_t unfold(std::uint32_t folded) {
  return static_cast<std::int32_t>(folded >> 1 ^ (0U - (folded & 1U)));
}

enum class AlphabetKind : std::uint8_t { kDirect = 0, kRanges = 1 };

// A symbol and the raw bits that follow it.
struct SymbolCode {
  std::uint16_t symbol;
  std::uint8_t bits;
  std::uint32_t offset;
};

class Alphabet {
 public:
  // 2 <= symbols <= kMaxSymbols, with the escape. 256 covers int8 except -128.
  static base::Result<Alphabet> direct(unsigned symbols);
  static Alphabet bytes() { return {AlphabetKind::kDirect, 256}; }
  static Alphabet ranges() { return {AlphabetKind::kRanges, kRangeSymbols}; }
  // Reads an alphabet from a header; fails if there is no such alphabet.
  static base::Result<Alphabet> of(std::uint8_t kind, unsigned symbols);

  AlphabetKind kind() const { return kind_; }
  unsigned symbols() const { return symbols_; }
  unsigned escape() const { return symbols_ - 1; }

  // The natural symbol of a folded value.
  SymbolCode code(std::uint32_t folded) const {
    if (kind_ == AlphabetKind::kDirect) {
      return folded < escape() ? SymbolCode{static_cast<std::uint16_t>(folded), 0, 0}
                               : SymbolCode{static_cast<std::uint16_t>(escape()), 32, folded};
    }
    // Without branches, because small and large values alternate. Below the first octave there are
    // no raw bits, and a value is its own symbol.
    constexpr std::uint32_t kQuarters = 1U << kRangesLog2;
    const unsigned bits =
        static_cast<unsigned>(std::bit_width(folded | kQuarters)) - kRangesLog2 - 1;
    return {static_cast<std::uint16_t>(bits * kQuarters + (folded >> bits)),
            static_cast<std::uint8_t>(bits), folded & ((std::uint32_t{1} << bits) - 1)};
  }

  // The first folded value of a symbol, and the number of raw offset bits after it.
  std::uint32_t first_of(unsigned symbol) const;
  unsigned bits_of(unsigned symbol) const;

  friend bool operator==(const Alphabet&, const Alphabet&) = default;

 private:
  static constexpr unsigned kFirstOctave = 3;
  static constexpr std::uint32_t kFirstRange = 1U << kFirstOctave;
  static constexpr unsigned kRangesLog2 = 2;
  static constexpr unsigned kRangeSymbols = kFirstRange + (32 - kFirstOctave) * 4 + 1;

  Alphabet(AlphabetKind kind, unsigned symbols) : kind_(kind), symbols_(symbols) {}

  AlphabetKind kind_;
  unsigned symbols_;
};

}  // namespace spillway::codec::entropy
