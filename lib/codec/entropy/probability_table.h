// SPDX-License-Identifier: Apache-2.0
//
// The probability of each symbol in units of 2^-14; encoder and decoder must agree on it.
//
// Invariants: frequencies sum to 2^14, the escape has at least 1, and no symbol has all. So every
// value can be coded and every frequency fits 14 bits. A symbol with frequency 0 is coded as an
// escape.
//
// Tables are made with integer arithmetic only, in a fixed order with fixed tie-breaks. The same
// counts give the same table and hash with every compiler on every machine. So two ends with equal
// counts need not send the table. The hash detects accidental differences; it is no protection
// against attackers.
//
// A value; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "codec/entropy/alphabet.h"

namespace spillway::codec::entropy {

inline constexpr unsigned kProbabilityBits = 14;
inline constexpr std::uint32_t kProbabilityTotal = 1U << kProbabilityBits;

class ProbabilityTable {
 public:
  // Scales counts to 2^14, rounded so that coding these counts takes few bits. A symbol that occurs
  // gets at least 1, unless it is so rare that an escape is cheaper. An empty histogram gives a
  // table that expects only zeros: it codes, but does not compress.
  static ProbabilityTable of_counts(const Histogram& histogram);

  // A distribution given by one number, for links whose ends have no counts yet. The scale is in
  // 1/256 of the integers' unit: the mean magnitude of a Laplace distribution, the standard
  // deviation of a normal one. Scales range from 1 to 2^32 - 1; 0 counts as 1.
  static ProbabilityTable laplace(Alphabet alphabet, std::uint32_t scale_q8);
  static ProbabilityTable gauss(Alphabet alphabet, std::uint32_t scale_q8);

  // Reads what serialise() wrote; the bytes need not be trusted.
  static base::Result<ProbabilityTable> parse(base::ByteReader& reader);
  // Appends at most kMaxTableBytes. A writer without enough room turns bad.
  void serialise(base::ByteWriter& writer) const;

  const Alphabet& alphabet() const { return alphabet_; }
  std::span<const std::uint16_t> frequencies() const { return frequencies_; }
  std::uint32_t hash() const { return hash_; }

  // The cost of each natural symbol in 1/256 bit: its own code or an escape, plus raw bits. Integer
  // arithmetic, too high by at most 1/256 bit.
  std::vector<std::uint32_t> costs_q8() const;
  // The total cost of values with these counts; the histogram must have the same alphabet.
  std::uint64_t cost_q8(const Histogram& histogram) const;

  friend bool operator==(const ProbabilityTable&, const ProbabilityTable&) = default;

 private:
  ProbabilityTable(Alphabet alphabet, std::vector<std::uint16_t> frequencies);

  Alphabet alphabet_;
  std::vector<std::uint16_t> frequencies_;
  std::uint32_t hash_;
};

// Kind 1, symbols 2, bytes 2, then at most 4 + 13 bits per symbol.
inline constexpr std::size_t kMaxTableBytes = 1 + 2 + 2 + (std::size_t{kMaxSymbols} * 17 + 7) / 8;

}  // namespace spillway::codec::entropy
