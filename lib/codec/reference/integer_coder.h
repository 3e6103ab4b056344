// SPDX-License-Identifier: Apache-2.0
//
// Lossless codes of quantised gradients, to compare the entropy coder (codec/entropy) with, behind
// one small interface. Spillway's own coder is among them.
//
// Names:
//   asc          rANS with the last step's table, which is not sent (codec/entropy)
//   one-table    the same with one table for everything learned so far
//   inline       the same with each message's own table, sent along
//   parametric   the same with a Laplace table from the last step's mean magnitude
//   adaptive     an arithmetic coder whose model learns from every symbol
//   atalanta     sixteen ranges and raw offsets (atalanta.cc)
//   dual-length  a short code for the eight commonest values, a long one for others
//   packed       blocks of 256 values, each in the width of the block's largest
//
// Only learn() changes a coder: it gets the values of the last step, the same at both ends. A coder
// encodes any values, whatever it has learned, and decode accepts any bytes. One thread at a time.
// Plain code; nothing on a data path uses it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "codec/entropy/alphabet.h"
#include "codec/entropy/block_coder.h"

namespace spillway::codec::reference {

class IntegerCoder {
 public:
  virtual ~IntegerCoder() = default;

  virtual std::string_view name() const = 0;
  // Coders without state across steps do not override this.
  virtual void learn(std::span<const std::int32_t> values);
  // At most 2^28 values.
  virtual std::vector<std::uint8_t> encode(std::span<const std::int32_t> values) = 0;
  // Decodes values.size() values.
  virtual base::Status decode(base::ByteView bytes, std::span<std::int32_t> values) = 0;
};

// All coders, in the order of the list above.
std::vector<std::unique_ptr<IntegerCoder>> all_integer_coders();

// The coder of that name; an unknown name gives an error that lists all names.
base::Result<std::unique_ptr<IntegerCoder>> make_integer_coder(std::string_view name);

// ------------------------------------------------------------------ Spillway's entropy coder
//
// One coder for each source of tables. It uses direct symbols if all learned values fit 8 bits,
// else range symbols.

enum class TableSource { kLastStep, kAllSteps, kInline, kParametric };

// The alphabet that suits the learned values.
entropy::Alphabet alphabet_for(std::span<const std::int32_t> values);

class TableCoder : public IntegerCoder {
 public:
  explicit TableCoder(TableSource source) : source_(source) {}

  std::string_view name() const override;
  void learn(std::span<const std::int32_t> values) override;
  std::vector<std::uint8_t> encode(std::span<const std::int32_t> values) override;
  base::Status decode(base::ByteView bytes, std::span<std::int32_t> values) override;

 private:
  entropy::ProbabilityTable learned(std::span<const std::int32_t> values);

  TableSource source_;
  std::optional<entropy::Histogram> seen_;
  std::optional<entropy::EncodeTable> encode_table_;  // both or neither are set
  std::optional<entropy::DecodeTable> decode_table_;
  entropy::BlockEncoder encoder_;
  entropy::BlockDecoder decoder_;
};

// ------------------------------------------------------------------ fixed lengths
//
// Codes without a probability model, cheap to compute: the baseline for entropy coding.
//
// packed: blocks of kPackedBlock values. A byte gives the width of the block's largest folded value
// (codec/entropy/alphabet.h), and all values follow in that width.
//
// dual-length (after arXiv 2602.17849): the eight commonest folded values learned take a 0 and
// three bits. Others take a 1 and the width of the message's largest value, which its first byte
// gives. Before anything is learned the eight smallest folded values are the short ones.

inline constexpr std::size_t kPackedBlock = 256;

class PackedCoder : public IntegerCoder {
 public:
  std::string_view name() const override { return "packed"; }
  std::vector<std::uint8_t> encode(std::span<const std::int32_t> values) override;
  base::Status decode(base::ByteView bytes, std::span<std::int32_t> values) override;
};

class DualLengthCoder : public IntegerCoder {
 public:
  std::string_view name() const override { return "dual-length"; }
  void learn(std::span<const std::int32_t> values) override;
  std::vector<std::uint8_t> encode(std::span<const std::int32_t> values) override;
  base::Status decode(base::ByteView bytes, std::span<std::int32_t> values) override;

 private:
  std::array<std::uint32_t, 8> short_ = {0, 1, 2, 3, 4, 5, 6, 7};
};

// ------------------------------------------------------------------ adaptive
//
// The backward-adaptive coder: every symbol is coded by how often it occurred before, and then
// counted. There is no table, and both ends only agree on the initial model. It is some twenty
// times slower than a static table, because each symbol needs the model left by the one before.
//
// A range coder with 32-bit range and carries. Its counts form a binary indexed tree and are halved
// when their sum exceeds 2^16. Messages begin with the model that learn() left (equal counts before
// that), so they can be decoded in any order. Offsets of wide values go through the coder
// unmodelled.

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

// ------------------------------------------------------------------ Atalanta
//
// Atalanta, as far as APack (arXiv 2201.08830) describes it. Values fall into sixteen ranges. The
// range is arithmetic-coded with 10-bit cumulative counts in 16-bit registers; the offset within it
// follows as raw bits.
//
// The table is made from the learned values. The original search moves boundaries step by step.
// Here dynamic programming over the histogram finds the ranges with the fewest bits exactly (in
// steps, if values span more than 4096). Ranges cover twice what was seen. A message with values
// beyond that, or before anything is learned, is packed.

inline constexpr std::size_t kAtalantaRanges = 16;
inline constexpr unsigned kAtalantaBits = 10;

// One range: at most values first .. first + 2^offset_bits - 1; counts from `low` up to, not
// including, `high`.
struct AtalantaRange {
  std::int32_t first = 0;
  unsigned offset_bits = 0;
  std::uint32_t low = 0;
  std::uint32_t high = 0;
};

class AtalantaCoder : public IntegerCoder {
 public:
  std::string_view name() const override { return "atalanta"; }
  void learn(std::span<const std::int32_t> values) override;
  std::vector<std::uint8_t> encode(std::span<const std::int32_t> values) override;
  base::Status decode(base::ByteView bytes, std::span<std::int32_t> values) override;

  std::span<const AtalantaRange> ranges() const { return {ranges_.data(), used_}; }

 private:
  std::size_t range_of(std::int32_t value) const;

  std::array<AtalantaRange, kAtalantaRanges> ranges_;
  std::size_t used_ = 0;  // 0 before anything is learned
  std::int32_t smallest_ = 0;
  std::int32_t largest_ = -1;
  PackedCoder packed_;
};

}  // namespace spillway::codec::reference
