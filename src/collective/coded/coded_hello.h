// SPDX-License-Identifier: Apache-2.0
//
// What ranks of a coded all-reduce tell each other first, and what follows from it. Everybody tells
// everybody: how large its numbers are, and by hashes what it remembers of the tensor
// (code_book.h). Once all hellos are in, every rank knows
//
//   the scale         of the largest magnitude of all ranks; or of the last time's, with head-room,
//                     where that was asked for and all ranks remember the same
//   the shared codes  whether all ranks have the same: if so, they cut and code sums by them
//   each link         whether both of its ends have the same tables
//
// and both ends of a link know the same about it, so nothing is ever decoded with a wrong table and
// no word need go back. Who remembers nothing alike codes by a Laplace distribution, whose scale
// follows from the hellos; who remembers something else sends tables along.
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
  float largest = 0.0F;        // magnitude; NaN where something is not finite
  float mean = 0.0F;           // magnitude
  std::uint32_t shared = 0;    // hashes, 0 for nothing: of the shared codes,
  std::uint32_t sent = 0;      // of the tables for what goes to the rank that is told,
  std::uint32_t received = 0;  // and for what comes from it

  friend bool operator==(const CodedHello&, const CodedHello&) = default;
};

inline constexpr std::size_t kHelloBytes = 20;
using HelloBytes = std::array<std::uint8_t, kHelloBytes>;
HelloBytes write_hello(const CodedHello& hello);
CodedHello read_hello(const HelloBytes& bytes);

// Where the table of a message comes from.
enum class TableSource : std::uint8_t {
  kLast,        // both ends made it of the last operation
  kParametric,  // both ends make it of the hellos
  kInline,      // it comes along
};

struct CodedAgreement {
  float largest = 0.0F;  // of all ranks
  float scale = 0.0F;    // that all quantise with
  bool is_predicted = false;
  TableSource sums = TableSource::kInline;
  std::vector<TableSource> sent;      // by rank
  std::vector<TableSource> received;  // by rank
};

// `to` by rank what this one told it, `from` what it was told; their own entries count as if it had
// told itself. `last`: what this rank remembers, or null.
CodedAgreement agree_on_codes(std::span<const CodedHello> to, std::span<const CodedHello> from,
                              const TensorCodes* last, bool predicts_scale);

// The mean magnitude of a sum of the numbers of these ranks in 1/256 of `unit`, as if they were
// independent.
std::uint32_t parametric_scale(std::span<const float> means, double unit);

}  // namespace spillway::collective
