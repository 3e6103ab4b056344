// SPDX-License-Identifier: Apache-2.0
//
// Integers as symbols for the entropy coder, counts of symbols, and the raw bits beside them.
//
// A value v is first folded, small magnitudes first (0,
// -1, 1, -2, ... become 0, 1, 2, 3, ...):
//
//   direct(A)   folded values 0 .. A-2 are symbols of their own
//   ranges()    folded values 0 .. 7 are symbols. Each octave above has four symbols, and the
//               offset within the symbol's range follows as raw bits. That is 124 symbols for all
//               32-bit values, about forty for sums of 8-bit numbers. Raw offsets cost little,
//               because gradients are smooth.
//
// The last symbol of either is the escape: the folded value follows in 32 raw bits. It covers
// values without a symbol in a table, so every value has a code under every table.
//
// Statistics count natural symbols: the symbol of a value whatever the table. Only values beyond a
// direct alphabet have the escape as their natural symbol.
//
// An Alphabet is a value for any thread. Histograms and bit streams are not for sharing.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
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

// The natural symbols of a whole span of values; compilers vectorise the loops. `symbols` has room
// for one per value; its type must hold the alphabet.
template <typename Value, typename Symbol>
void natural_symbols(const Alphabet& alphabet, std::span<const Value> values, Symbol* symbols) {
  if (alphabet.kind() == AlphabetKind::kRanges) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      symbols[i] = static_cast<Symbol>(alphabet.code(fold(values[i])).symbol);
    }
    return;
  }
  // Folds in the values' own width, which gives more lanes for narrow types.
  using Folded = std::make_unsigned_t<Value>;
  constexpr unsigned kSignShift = 8 * sizeof(Value) - 1;
  const auto escape = static_cast<std::uint32_t>(alphabet.escape());
  const auto last = static_cast<Folded>(std::min<std::uint64_t>(escape, static_cast<Folded>(-1)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto folded = static_cast<Folded>(static_cast<Folded>(values[i]) << 1 ^
                                            static_cast<Folded>(values[i] >> kSignShift));
    symbols[i] = static_cast<Symbol>(std::min(folded, last));
  }
}

// ------------------------------------------------------------------ counts
//
// Counts each natural symbol of an alphabet; the next step's table is made from the counts. A
// sender counts while it encodes, a receiver while it decodes. Coding is lossless, so both get the
// same counts.
//
// Counts do not overflow: all are halved before their total would exceed kMaxTotal (a symbol that
// occurs keeps at least 1). Ranks that add the same values in the same portions halve at the same
// point. A portion has at most kMaxPortion values.

class Histogram {
 public:
  static constexpr std::uint64_t kMaxTotal = (std::uint64_t{1} << 32) - 1;
  static constexpr std::uint64_t kMaxPortion = std::uint64_t{1} << 31;

  explicit Histogram(Alphabet alphabet) : alphabet_(alphabet), counts_(alphabet.symbols()) {}

  const Alphabet& alphabet() const { return alphabet_; }
  std::span<const std::uint32_t> counts() const { return counts_; }
  std::uint64_t total() const { return total_; }

  void add(std::span<const std::int8_t> values);
  void add(std::span<const std::int16_t> values);
  void add(std::span<const std::int32_t> values);
  // Adds natural symbols of this alphabet.
  void add_symbols(std::span<const std::uint8_t> symbols);
  void add_symbols(std::span<const std::uint16_t> symbols);
  // Adds the same value or symbol `count` times.
  void add_run(std::int32_t value, std::uint64_t count);
  void add_symbol(unsigned symbol, std::uint64_t count);
  // Adds another histogram of the same alphabet as one portion.
  void merge(const Histogram& other);
  // Reduces the weight of old counts: halves all, rounding up.
  void halve();
  void clear();

  // Shannon's bound for these counts in bits, with raw offsets and escapes. Uses floating point, so
  // it is for reports only.
  double entropy_bits() const;

  friend bool operator==(const Histogram&, const Histogram&) = default;

 private:
  void make_room(std::uint64_t count);
  template <typename Value>
  void add_values(std::span<const Value> values);

  Alphabet alphabet_;
  std::vector<std::uint32_t> counts_;
  std::uint64_t total_ = 0;
};

// ------------------------------------------------------------------ raw bits
//
// Numbers of varying widths (0 .. 32 bits) back to back, least significant bit first: the offsets
// and escapes beside the entropy coder's words.
//
// The creator of a writer must provide room for all bits plus kBitSlack bytes, which are written
// to; the writer does not check. A reader stays inside its bytes, yields zeros beyond their end and
// remembers that. Not for sharing.

inline constexpr std::size_t kBitSlack = 8;

class BitWriter {
 public:
  explicit BitWriter(std::uint8_t* to) : begin_(to), to_(to) {}

  void put(std::uint32_t value, unsigned width) {
    SPILLWAY_DCHECK(width == 32 || value >> width == 0);
    pending_ |= std::uint64_t{value} << bits_;
    bits_ += width;
    base::store_le(to_, pending_);
    to_ += bits_ / 8;
    pending_ >>= bits_ & ~7U;
    bits_ &= 7U;
  }

  // Bytes written; the last one is padded with zero bits.
  std::size_t bytes() const { return static_cast<std::size_t>(to_ - begin_) + (bits_ > 0 ? 1 : 0); }

 private:
  std::uint8_t* begin_;
  std::uint8_t* to_;
  std::uint64_t pending_ = 0;
  unsigned bits_ = 0;  // below 8 between calls
};

class BitReader {
 public:
  explicit BitReader(base::ByteView bytes) : bytes_(bytes) {}

  std::uint32_t get(unsigned width) {
    const std::size_t byte = position_ / 8;
    const std::uint64_t loaded =
        byte + 8 <= bytes_.size() ? base::load_le<std::uint64_t>(bytes_.data() + byte) : tail(byte);
    const std::uint64_t value = loaded >> (position_ % 8) & ((std::uint64_t{1} << width) - 1);
    position_ += width;
    return static_cast<std::uint32_t>(value);
  }

  // True if exactly these bytes were read and the last one's padding is zero.
  bool is_at_end() {
    if ((position_ + 7) / 8 != bytes_.size()) {
      return false;
    }
    return position_ % 8 == 0 || bytes_.back() >> (position_ % 8) == 0;
  }

 private:
  std::uint64_t tail(std::size_t byte) const {
    std::uint64_t loaded = 0;
    for (std::size_t i = byte; i < bytes_.size() && i < byte + 8; ++i) {
      loaded |= std::uint64_t{bytes_[i]} << (8 * (i - byte));
    }
    return loaded;
  }

  base::ByteView bytes_;
  std::size_t position_ = 0;  // in bits; beyond the end once zeros were yielded
};

}  // namespace spillway::codec::entropy
