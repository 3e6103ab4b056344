// SPDX-License-Identifier: Apache-2.0
//
// Ranks remember codes of a tensor from one entropy-coded all-reduce to the next, so that tables of
// probabilities need not be sent. Both ends of a link remember, for every step, the table that both
// made of the numbers that went over it. All ranks remember what they made of the sums that they
// all have: tables of the sums, the largest magnitude, what blocks cost, and where a sketch expects
// zeros. Pieces of a chunk are of different layers, so each has tables of its own.
//
// Codes advance when an operation has ended at this rank. If it did not end at another, or a rank
// forgot, hashes differ the next time. All ranks concerned know it then (below), and tables
// are sent along once. Hash 0 means nothing is remembered.
//
// Bounded: CodeCache::kMaxTensors; the tensor with the lowest name is forgotten first. One thread;
// codes themselves do not change any more once they are in the cache.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "codec/entropy/probability_table.h"
#include "codec/sketch/sparse_code.h"
#include "collective/entropy/chunk_layout.h"
#include "collective/operation.h"

namespace spillway::collective {

// Codes are used again only if all of this is the same.
struct CodeUse {
  Codec codec = Codec::kEntropy;
  std::size_t count = 0;
  std::uint8_t precision = 0;
  Algorithm algorithm = Algorithm::kDirect;
  ChunkRule rule = ChunkRule::kStriped;
  Kind kind = Kind::kAllReduce;

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
  RememberedSketch sketch{};           // for Codec::kSketch

  std::uint32_t shared_hash() const;
};

// The new estimate of a block's cost, from the last estimate and what it did cost.
constexpr std::uint32_t next_cost(std::uint32_t estimate, std::uint32_t bits) {
  const std::int64_t change = std::int64_t{bits} - std::int64_t{estimate};
  return static_cast<std::uint32_t>(std::int64_t{estimate} + (change >> 2));
}

class CodeCache {
 public:
  static constexpr std::size_t kMaxTensors = 1024;

  // Codes of the tensor's last operation, if its use was the same; else null. Tensor 0 has no name.
  std::shared_ptr<const TensorCodes> last(std::uint64_t tensor, const CodeUse& use) const;
  // If operations of one tensor overlap, the later one counts.
  void keep(std::uint64_t tensor, TensorCodes codes);

 private:
  std::map<std::uint64_t, std::shared_ptr<const TensorCodes>> codes_;
};

// The first messages of an entropy-coded all-reduce, and what follows from them. Every rank tells
// every other how large its numbers are and, by hashes, what it remembers of the tensor (below).
// Once all hellos are in, every rank knows
//
//   the scale         of the largest magnitude of all ranks; or of the last time's, with head-room,
//                     if that was asked for and all ranks remember the same
//   the shared codes  whether all ranks have the same: if so, they cut and code sums by them
//   each link         whether both of its ends have the same tables
//
// Both ends of a link know the same about it, so nothing is ever decoded with a wrong table and no
// answer is needed. If both ends remember nothing, they code by a Laplace distribution, whose scale
// follows from the hellos. If they remember different things, tables are sent along.
//
// Pure values; any thread.

struct EntropyHello {
  float largest = 0.0F;        // largest magnitude; NaN if something is not finite
  float mean = 0.0F;           // mean magnitude
  std::uint32_t shared = 0;    // hash of the shared codes; a hash of 0: nothing
  std::uint32_t sent = 0;      // hash of the tables for sending to the rank that is told
  std::uint32_t received = 0;  // hash of the tables for receiving from it

  friend bool operator==(const EntropyHello&, const EntropyHello&) = default;
};

inline constexpr std::size_t kHelloBytes = 20;
using HelloBytes = std::array<std::uint8_t, kHelloBytes>;
HelloBytes write_hello(const EntropyHello& hello);
EntropyHello read_hello(const HelloBytes& bytes);

// Where the table of a message comes from.
enum class TableSource : std::uint8_t {
  kLast,        // both ends made it from the last operation
  kParametric,  // both ends make it from the hellos
  kInline,      // sent along
};

struct EntropyAgreement {
  float largest = 0.0F;  // of all ranks
  float scale = 0.0F;    // that all ranks quantise with
  bool is_predicted = false;
  TableSource sums = TableSource::kInline;
  std::vector<TableSource> sent;      // by rank
  std::vector<TableSource> received;  // by rank
};

// `to`, by rank: what this one told it; `from`: what it was told. The own entries count as if this
// rank had told itself. `last`: what this rank remembers, or null.
EntropyAgreement agree_on_codes(std::span<const EntropyHello> to,
                                std::span<const EntropyHello> from, const TensorCodes* last,
                                bool predicts_scale);

// The mean magnitude of a sum of these ranks' numbers in 1/256 of `unit`, as if they were
// independent.
std::uint32_t parametric_scale(std::span<const float> means, double unit);

}  // namespace spillway::collective
