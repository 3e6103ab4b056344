// SPDX-License-Identifier: Apache-2.0
//
// The backward-adaptive coder: every symbol is coded by how often it occurred before, and then
// counted. There is no table, and both ends only agree on the initial model. It is some twenty
// times slower than a static table, because each symbol needs the model left by the one before.
//
// A range coder with 32-bit range and carries. Its counts form a binary indexed tree and are halved
// when their sum exceeds 2^16. Messages begin with the model that learn() left (equal counts before
// that), so they can be decoded in any order. Offsets of wide values go through the coder
// unmodelled.
#pragma once

#include <cstdint>
#include <vector>

#include "codec/entropy/alphabet.h"
#include "codec/reference/integer_coder.h"

namespace spillway::codec::reference {

// Symbol counts with prefix sums and their inverse.
class AdaptiveModel {
 public:
  explicit AdaptiveModel(entropy::Alphabet alphabet);

  const entropy::Alphabet& alphabet() const { return alphabet_; }
  std::uint32_t total() const { return total_; }
  std::uint32_t count(unsigned symbol) const { return counts_[symbol]; }
  std::uint32_t below(unsigned symbol) const;
  // The symbol whose counts contain `position` < total(); `below` becomes the sum before it.
  unsigned find(std::uint32_t position, std::uint32_t& below) const;
  void add(unsigned symbol);

 private:
  void rebuild();

  entropy::Alphabet alphabet_;
  std::vector<std::uint32_t> counts_;
  std::vector<std::uint32_t> tree_;
  std::uint32_t total_ = 0;
};

class AdaptiveCoder : public IntegerCoder {
 public:
  AdaptiveCoder() : model_(entropy::Alphabet::ranges()) {}

  std::string_view name() const override { return "adaptive"; }
  void learn(std::span<const std::int32_t> values) override;
  std::vector<std::uint8_t> encode(std::span<const std::int32_t> values) override;
  base::Status decode(base::ByteView bytes, std::span<std::int32_t> values) override;

 private:
  AdaptiveModel model_;
};

}  // namespace spillway::codec::reference
