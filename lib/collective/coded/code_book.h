// SPDX-License-Identifier: Apache-2.0
//
// Ranks remember codes of a tensor from one coded all-reduce to the next, so that tables of
// probabilities need not be sent. Both ends of a link remember, for every step, the table that both
// made of the numbers that went over it. All ranks remember what they made of the sums that they
// all have: tables of the sums, the largest magnitude, what blocks cost, and where a sketch expects
// zeros. Pieces of a chunk are of different layers, so each has tables of its own.
//
// Codes advance when an operation has ended at this rank. If it did not end at another, or a rank
// forgot, hashes differ the next time. All ranks concerned know it then (coded_hello.h), and tables
// are sent along once. Hash 0 means nothing is remembered.
//
// Bounded: CodeBook::kMaxTensors; the tensor with the lowest name is forgotten first. One thread;
// codes themselves do not change any more once they are in the book.
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

// Codes are used again only if all of this is the same.
struct CodeUse {
  SumCode code = SumCode::kCoded;
  std::size_t count = 0;
  std::uint8_t precision = 0;
  Algorithm algorithm = Algorithm::kDirect;
  ChunkRule rule = ChunkRule::kStriped;

  friend bool operator==(const CodeUse&, const CodeUse&) = default;
};

// The numbers of a link that are sums of `step` ranks, in pieces with the number `piece`.
struct LinkStep {
  std::uint16_t peer = 0;
  std::uint16_t step = 0;
  std::uint16_t piece = 0;

  friend auto operator<=>(const LinkStep&, const LinkStep&) = default;
};

using LinkTables = std::map<LinkStep, codec::entropy::ProbabilityTable>;
// Hash of all tables with this peer.
std::uint32_t hash_of(const LinkTables& tables, std::uint16_t peer);

// The state that a sketch predicts by, and its fingerprint.
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
  // The same at all ranks:
  LinkTables sums{};  // by chunk, which takes the peer's place
  float largest = 0.0F;
  std::vector<std::uint32_t> costs{};  // by block, in bits; for ChunkRule::kBalanced
  RememberedSketch sketch{};           // for SumCode::kSketch

  std::uint32_t shared_hash() const;
};

// The new estimate of a block's cost, from the last estimate and what it did cost.
constexpr std::uint32_t next_cost(std::uint32_t estimate, std::uint32_t bits) {
  const std::int64_t change = std::int64_t{bits} - std::int64_t{estimate};
  return static_cast<std::uint32_t>(std::int64_t{estimate} + (change >> 2));
}

class CodeBook {
 public:
  static constexpr std::size_t kMaxTensors = 1024;

  // Codes of the tensor's last operation, if its use was the same; else null. Tensor 0 has no name.
  std::shared_ptr<const TensorCodes> last(std::uint64_t tensor, const CodeUse& use) const;
  // If operations of one tensor overlap, the later one counts.
  void keep(std::uint64_t tensor, TensorCodes codes);

 private:
  std::map<std::uint64_t, std::shared_ptr<const TensorCodes>> codes_;
};

}  // namespace spillway::collective
