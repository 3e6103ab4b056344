// SPDX-License-Identifier: Apache-2.0
//
// Counts each natural symbol of an alphabet; the next step's table is made from the counts. A
// sender counts while it encodes, a receiver while it decodes. Coding is lossless, so both get the
// same counts.
//
// Counts do not overflow: all are halved before their total would exceed kMaxTotal (a symbol that
// occurs keeps at least 1). Ranks that add the same values in the same portions halve at the same
// point. A portion has at most kMaxPortion values. A value; not for sharing while it changes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codec/entropy/alphabet.h"

namespace spillway::codec::entropy {

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

}  // namespace spillway::codec::entropy
