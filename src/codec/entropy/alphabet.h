// SPDX-License-Identifier: Apache-2.0
//
// Integers as symbols: what an entropy coder codes. A value v is first folded, small magnitudes
// first (0, -1, 1, -2, ... become 0, 1, 2, 3, ...), and then
//
//   direct(A)   folded values 0 .. A-2 are symbols of their own
//   ranges()    folded values 0 .. 7 are symbols, and each octave above has four, whose offset
//               within the range follows raw: 124 symbols for any 32-bit value, some forty for
//               sums of 8-bit numbers. Raw offsets cost little, because gradients are smooth.
//
// The last symbol of either is the escape: the folded value follows raw, in 32 bits. It stands for
// whatever a table has no other symbol for, so that every value has a code under every table.
//
// Natural symbols are what statistics count: the symbol of a value whatever the table. Only values
// beyond a direct alphabet have the escape as their natural symbol.
//
// A value; any thread.
#pragma once

#include <bit>
#include <cstdint>

#include "base/status.h"

namespace spillway::codec::entropy {

// Room for 12-bit sums; more symbols than that want ranges.
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
  // 2 <= symbols <= kMaxSymbols, the escape included. 256 hold all of int8 but -128.
  static base::Result<Alphabet> direct(unsigned symbols);
  static Alphabet bytes() { return {AlphabetKind::kDirect, 256}; }
  static Alphabet ranges() { return {AlphabetKind::kRanges, kRangeSymbols}; }
  // What is read from bytes: an error if there is no such alphabet.
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
    // Without branches, as small values and large ones alternate. Below the first octave there are
    // no bits to spare, and a value is its own symbol.
    constexpr std::uint32_t kQuarters = 1U << kRangesLog2;
    const unsigned bits =
        static_cast<unsigned>(std::bit_width(folded | kQuarters)) - kRangesLog2 - 1;
    return {static_cast<std::uint16_t>(bits * kQuarters + (folded >> bits)),
            static_cast<std::uint8_t>(bits), folded & ((std::uint32_t{1} << bits) - 1)};
  }

  // The first folded value of a symbol, and how many bits of offset follow it.
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
