// SPDX-License-Identifier: Apache-2.0
//
// What ranks remember of a tensor from one coded all-reduce to the next, so that tables of
// probabilities are never sent: those of every link and step, which both of its ends made of the
// numbers that went over it, and what all ranks made of the sums they all have: tables of the sums,
// the largest magnitude, what blocks cost, and where a sketch expects zeros. Pieces of a chunk are
// of different layers, so each has tables of its own.
//
// Codes advance when an operation has ended at this rank. Where that was not so at another, or
// somebody forgot, hashes differ the next time, all who are concerned know it (coded_hello.h), and
// tables travel along once. A hash of 0 is that of nothing.
//
// Bounded: CodeBook::kMaxTensors; the one of the lowest name is forgotten first. One thread; codes
// themselves do not change any more once they are in the book.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "codec/entropy/probability_table.h"
#include "codec/sketch/sparse_code.h"
#include "collective/coded/chunk_layout.h"
#include "collective/operation.h"

namespace spillway::collective {

// What has to be the same for codes to be of use again.
struct CodeUse {
  SumCode code = SumCode::kCoded;
  std::size_t count = 0;
  std::uint8_t precision = 0;
  Algorithm algorithm = Algorithm::kDirect;
  ChunkRule rule = ChunkRule::kStriped;

  friend bool operator==(const CodeUse&, const CodeUse&) = default;
};

// The numbers of a link that are sums of so many ranks, in pieces of this number.
struct LinkStep {
  std::uint16_t peer = 0;
  std::uint16_t step = 0;
  std::uint16_t piece = 0;

  friend auto operator<=>(const LinkStep&, const LinkStep&) = default;
};

using LinkTables = std::map<LinkStep, codec::entropy::ProbabilityTable>;
// Of all tables with this peer.
std::uint32_t hash_of(const LinkTables& tables, std::uint16_t peer);

// What a sketch predicts by, and its fingerprint.
struct RememberedSketch {
  RememberedSketch() = default;
  explicit RememberedSketch(std::shared_ptr<const codec::sketch::SparseCode> code_)
      : code(std::move(code_)), fingerprint(code->fingerprint()) {}

  std::shared_ptr<const codec::sketch::SparseCode> code;
  std::uint64_t fingerprint = 0;
};

struct TensorCodes {
  CodeUse use{};
  std::uint64_t sequence = 0;  // of the operation they are from
  LinkTables sent{};
  LinkTables received{};
  // The same at all ranks.
  LinkTables sums{};  // by chunk, which stands for the peer
  float largest = 0.0F;
  std::vector<std::uint32_t> costs{};  // by block, in bits; for ChunkRule::kBalanced
  RememberedSketch sketch{};           // of SumCode::kSketch

  std::uint32_t shared_hash() const;
};

// What a block is reckoned to cost, by what it was reckoned to and what it did.
constexpr std::uint32_t next_cost(std::uint32_t estimate, std::uint32_t bits) {
  const std::int64_t change = std::int64_t{bits} - std::int64_t{estimate};
  return static_cast<std::uint32_t>(std::int64_t{estimate} + (change >> 2));
}

class CodeBook {
 public:
  static constexpr std::size_t kMaxTensors = 1024;

  // Of the tensor's last operation, if it was one like this; else null. Tensor 0 has no name.
  std::shared_ptr<const TensorCodes> last(std::uint64_t tensor, const CodeUse& use) const;
  // Of operations of the same tensor that overlap the later one counts.
  void keep(std::uint64_t tensor, TensorCodes codes);

 private:
  std::map<std::uint64_t, std::shared_ptr<const TensorCodes>> codes_;
};

}  // namespace spillway::collective
