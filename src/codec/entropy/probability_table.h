// SPDX-License-Identifier: Apache-2.0
//
// How likely each symbol is, in units of 2^-14: what encoder and decoder must agree on.
//
// Invariants: frequencies sum to 2^14; the escape has at least 1 and no symbol has all, so that
// every value can be coded and every frequency fits 14 bits. A symbol with frequency 0 is coded as
// an escape.
//
// Tables are made from integers alone, in a fixed order with fixed tie-breaks: the same counts give
// the same table, and the same hash, with every compiler on every machine. Both ends of a link that
// counted the same thus need not send it. The hash is for noticing that they did not; it keeps
// nobody out who wants in.
//
// A value; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "codec/entropy/alphabet.h"
#include "codec/entropy/histogram.h"

namespace spillway::codec::entropy {

inline constexpr unsigned kProbabilityBits = 14;
inline constexpr std::uint32_t kProbabilityTotal = 1U << kProbabilityBits;

class ProbabilityTable {
 public:
  // Counts scaled to 2^14, rounded so that coding these counts takes few bits. A symbol that occurs
  // gets at least 1, unless it is so rare that escaping it is cheaper. An empty histogram gives a
  // table that takes everything for zero, which codes but does not compress.
  static ProbabilityTable of_counts(const Histogram& histogram);

  // A distribution that one number describes, for both ends of a link that have no counts yet. The
  // scale is in 1/256 of the integers' unit: the mean magnitude of a Laplace distribution, the
  // standard deviation of a normal one. Scales beyond [1, 2^32) are not possible; 0 counts as 1.
  static ProbabilityTable laplace(Alphabet alphabet, std::uint32_t scale_q8);
  static ProbabilityTable gauss(Alphabet alphabet, std::uint32_t scale_q8);

  // Reads what serialise() wrote, wherever it came from.
  static base::Result<ProbabilityTable> parse(base::ByteReader& reader);
  // Appends; at most kMaxTableBytes. A writer without room turns bad.
  void serialise(base::ByteWriter& writer) const;

  const Alphabet& alphabet() const { return alphabet_; }
  std::span<const std::uint16_t> frequencies() const { return frequencies_; }
  std::uint32_t hash() const { return hash_; }

  // What each natural symbol takes in 1/256 bit: itself or an escape, and raw bits. Integer
  // arithmetic, too high by at most 1/256 bit.
  std::vector<std::uint32_t> costs_q8() const;
  // The sum over values with these counts; the histogram has the same alphabet.
  std::uint64_t cost_q8(const Histogram& histogram) const;

  friend bool operator==(const ProbabilityTable&, const ProbabilityTable&) = default;

 private:
  ProbabilityTable(Alphabet alphabet, std::vector<std::uint16_t> frequencies);

  Alphabet alphabet_;
  std::vector<std::uint16_t> frequencies_;
  std::uint32_t hash_;
};

// Kind 1, symbols 2, bytes 2, then at most 4 + 13 bits a symbol.
inline constexpr std::size_t kMaxTableBytes = 1 + 2 + 2 + (std::size_t{kMaxSymbols} * 17 + 7) / 8;

}  // namespace spillway::codec::entropy
