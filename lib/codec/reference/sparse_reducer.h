// SPDX-License-Identifier: Apache-2.0
//
// All-reduces of mostly-zero integer gradients, complete and in one process: the messages that
// ranks would send each other, their sizes in bits, and the result. They compare Spillway's own
// code (codec/sketch/sparse_code.h) with others, for experiments.
//
//   predicted    sparse_code.h
//   sketch       the union of the ranks' supports, and a count sketch of all values
//                  kMedian   reads like S2 Reducer: the median of three cells (arXiv 2110.02140)
//                  kPeeled   reads like LHC: peels, then medians for the rest (arXiv 2402.07529)
//   union        first the union of supports, then the values inside it: two rounds, no sketch
//   top-k        every rank's k largest values with their indices; the owner sends those of the sum
//
// Bits are those of one rank in an exchange through owners: its own part on the way there (the mean
// over ranks), the sum on the way back. Numbers have the smallest width for values, or sums, up to
// `limit`; of cells only that many low bits travel. Supports take the bytes of encode_support().
// With `raw_bitmap` they take one bit per element, as in the papers.
//
// A reducer may keep state across steps. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "codec/sketch/sparse_code.h"
#include "codec/sketch/support.h"

namespace spillway::codec::sketch::reference {

struct SparseJob {
  std::size_t length = 0;
  unsigned ranks = 1;
  std::int32_t limit = 127;  // largest magnitude of a rank's values
};

struct SparseOutcome {
  std::vector<std::int32_t> sum{};
  // Per rank: indices whose value is not in the sum and stays in the residual.
  std::vector<Support> unused{};
  std::uint64_t part_bits = 0;
  std::uint64_t sum_bits = 0;
  std::size_t nonzero = 0;    // indices in the union
  std::size_t predicted = 0;  // indices sent without naming them
  std::size_t misses = 0;     // indices outside the prediction
};

class SparseReducer {
 public:
  virtual ~SparseReducer() = default;

  // One part per rank, each with the job's length and within its limit.
  virtual base::Result<SparseOutcome> reduce(std::span<const std::vector<std::int32_t>> parts,
                                             std::uint64_t seed) = 0;
};

enum class SketchReading : std::uint8_t { kMedian, kPeeled };

struct PlainSketchOptions {
  SketchReading reading = SketchReading::kPeeled;
  // Cells per hundred indices of this step's union, by which the sketch is sized; no real system
  // could know that size.
  unsigned cells_percent = 130;
  bool raw_bitmap = false;
};

std::unique_ptr<SparseReducer> make_plain_sketch(const SparseJob& job,
                                                 const PlainSketchOptions& options);
std::unique_ptr<SparseReducer> make_union(const SparseJob& job);
// Every rank sends at most `kept` values.
std::unique_ptr<SparseReducer> make_top_k(const SparseJob& job, std::size_t kept);
// Spillway's code; its contributors are set to the job's ranks.
base::Result<std::unique_ptr<SparseReducer>> make_predicted(const SparseJob& job,
                                                            SparseOptions options);

// ------------------------------------------------------------------ shared with tests

// Width of a signed number up to limit * ranks, in bits.
unsigned number_bits(const SparseJob& job, unsigned ranks);
std::uint64_t support_bits(const Support& chosen, const Support& excluded);
std::vector<std::int32_t> true_sum(std::span<const std::vector<std::int32_t>> parts);
// The union of the ranks' non-zero indices.
Support union_of(std::span<const std::vector<std::int32_t>> parts);

}  // namespace spillway::codec::sketch::reference
