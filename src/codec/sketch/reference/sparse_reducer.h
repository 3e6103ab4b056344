// SPDX-License-Identifier: Apache-2.0
//
// All-reduces of integer gradients that are mostly zero, whole and in one process: what ranks would
// send each other, how many bits that is, and what comes of it. Spillway's own code
// (codec/sketch/sparse_code.h) beside its rivals, for experiments.
//
//   predicted    sparse_code.h
//   sketch       the union of the ranks' supports, and a count sketch of all values
//                  kMedian   as S2 Reducer reads it: the median of three cells (arXiv 2110.02140)
//                  kPeeled   as LHC does: peeled, the median for what is left (arXiv 2402.07529)
//   union        first the union of supports, then the values inside it: two rounds, no sketch
//   top-k        every rank's k largest with their indices; the owner sends the sum's
//
// Bits are those of one rank in an exchange through owners: its own part on the way there (the
// mean of the ranks), the sum on the way back. Numbers take the width that values, or sums, of
// `limit` need at least; of cells only as many low bits count. Supports take the bytes of
// support_code.h, or a bit an element where `raw_bitmap` asks for what the papers do.
//
// A reducer may keep state from step to step. One thread at a time.
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
  std::int32_t limit = 127;  // of a rank's magnitudes
};

struct SparseOutcome {
  std::vector<std::int32_t> sum{};
  // By rank: where its value is not in the sum, and stays owed.
  std::vector<Support> unused{};
  std::uint64_t part_bits = 0;
  std::uint64_t sum_bits = 0;
  std::size_t nonzero = 0;    // of the union
  std::size_t predicted = 0;  // that went without an index
  std::size_t misses = 0;     // outside of these
};

class SparseReducer {
 public:
  virtual ~SparseReducer() = default;

  // One part per rank, of the job's length each, within its limit.
  virtual base::Result<SparseOutcome> reduce(std::span<const std::vector<std::int32_t>> parts,
                                             std::uint64_t seed) = 0;
};

enum class SketchReading : std::uint8_t { kMedian, kPeeled };

struct PlainSketchOptions {
  SketchReading reading = SketchReading::kPeeled;
  // Cells per hundred indices of this step's union, which the sketch is sized by: better than any
  // real one could know.
  unsigned cells_percent = 130;
  bool raw_bitmap = false;
};

std::unique_ptr<SparseReducer> make_plain_sketch(const SparseJob& job,
                                                 const PlainSketchOptions& options);
std::unique_ptr<SparseReducer> make_union(const SparseJob& job);
// Every rank sends `kept` values at most.
std::unique_ptr<SparseReducer> make_top_k(const SparseJob& job, std::size_t kept);
// Spillway's; the contributors of its options are the job's ranks.
base::Result<std::unique_ptr<SparseReducer>> make_predicted(const SparseJob& job,
                                                            SparseOptions options);

// ---- What they share ----

// Bits of a signed number up to limit * ranks.
unsigned number_bits(const SparseJob& job, unsigned ranks);
std::uint64_t support_bits(const Support& chosen, const Support& excluded);
std::vector<std::int32_t> true_sum(std::span<const std::vector<std::int32_t>> parts);
// Of the ranks' values that are not zero.
Support union_of(std::span<const std::vector<std::int32_t>> parts);

}  // namespace spillway::codec::sketch::reference
