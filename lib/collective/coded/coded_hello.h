// SPDX-License-Identifier: Apache-2.0
//
// The first messages of a coded all-reduce, and what follows from them. Every rank tells every
// other how large its numbers are and, by hashes, what it remembers of the tensor (code_book.h).
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
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "collective/coded/code_book.h"

namespace spillway::collective {

struct CodedHello {
  float largest = 0.0F;        // largest magnitude; NaN if something is not finite
  float mean = 0.0F;           // mean magnitude
  std::uint32_t shared = 0;    // hash of the shared codes; a hash of 0: nothing
  std::uint32_t sent = 0;      // hash of the tables for sending to the rank that is told
  std::uint32_t received = 0;  // hash of the tables for receiving from it

  friend bool operator==(const CodedHello&, const CodedHello&) = default;
};

inline constexpr std::size_t kHelloBytes = 20;
using HelloBytes = std::array<std::uint8_t, kHelloBytes>;
HelloBytes write_hello(const CodedHello& hello);
CodedHello read_hello(const HelloBytes& bytes);

// Where the table of a message comes from.
enum class TableSource : std::uint8_t {
  kLast,        // both ends made it from the last operation
  kParametric,  // both ends make it from the hellos
  kInline,      // sent along
};

struct CodedAgreement {
  float largest = 0.0F;  // of all ranks
  float scale = 0.0F;    // that all ranks quantise with
  bool is_predicted = false;
  TableSource sums = TableSource::kInline;
  std::vector<TableSource> sent;      // by rank
  std::vector<TableSource> received;  // by rank
};

// `to`, by rank: what this one told it; `from`: what it was told. The own entries count as if this
// rank had told itself. `last`: what this rank remembers, or null.
CodedAgreement agree_on_codes(std::span<const CodedHello> to, std::span<const CodedHello> from,
                              const TensorCodes* last, bool predicts_scale);

// The mean magnitude of a sum of these ranks' numbers in 1/256 of `unit`, as if they were
// independent.
std::uint32_t parametric_scale(std::span<const float> means, double unit);

}  // namespace spillway::collective
