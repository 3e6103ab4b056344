// SPDX-License-Identifier: Apache-2.0
//
// Sums of integer gradients that are mostly zero, without sending the zeros and without asking
// first where they are (OSCAR-SW, HPCA'26, as far as its abstract tells).
//
// All ranks predict the same support from the last sum (support_predictor.h). A part, what one rank
// sends, is then
//
//   numbers   the values inside the prediction, one after another, and behind these the cells of a
//             count sketch of the values outside it, the misses. Any all-reduce of 32-bit integers
//             adds parts up; cells wrap, values of the sum must not (count_sketch.h)
//   misses    where these are. Or'ed over all ranks; as bytes by support_code.h
//
// and the sum of parts decodes exactly: the dense values as they are, the misses by peeling. The
// sketch has room for `headroom_percent` of the last step's misses. What it cannot give back, and
// what did not arrive, is named in SparseSum::unrecovered: none of any rank's value is in the sum
// there, so each rank owes its own to the next step. Such indices are predicted next time.
//
// A step that would not be shorter than the tensor goes densely: so does the first. The second has
// room for as many misses as there were values in the first, since nobody knows yet. Where numbers
// are entropy coded zeros cost little, and a sketch pays for itself less often: most_misses_percent
// and most_numbers_percent say how far.
//
// Ranks need the same options, the same seed per step, and the same sums: whoever advances with
// another sum, or misses a step, is found out by fingerprint(), and all reset().
//
// One thread at a time for advance() and reset(); the rest is const.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "codec/sketch/count_sketch.h"
#include "codec/sketch/support.h"
#include "codec/sketch/support_predictor.h"

namespace spillway::codec::sketch {

struct SparseOptions {
  unsigned contributors = 1;  // ranks; each value is at most largest_number(contributors)
  PredictionRule rule = PredictionRule::kCounter;
  unsigned cells_percent = 130;     // cells per hundred keys: 130 or more
  unsigned headroom_percent = 150;  // keys that the sketch has room for, of the last step's
  // Misses of the last step, in the predicted values', above which the next goes densely; 0: any.
  unsigned most_misses_percent = 0;
  unsigned most_numbers_percent = 100;  // of the tensor's length; a longer step goes densely
};

// Of one rank, or the sum of several.
struct SparsePart {
  std::vector<std::int32_t> numbers;
  Support misses;

  // What an all-reduce does: both parts are of the same step.
  void add(const SparsePart& other);
};

struct SparseSum {
  std::vector<std::int32_t> values;  // zero where nothing was recovered
  Support unrecovered;
  std::size_t misses = 0;  // recovered or not
};

class SparseCode {
 public:
  // For tensors of up to kMaxSupportLength values.
  static base::Result<SparseCode> make(std::size_t length, const SparseOptions& options);

  // The step that is next, equal at all ranks.
  const Support& predicted() const { return plan_.predicted; }
  const SketchShape& shape() const { return plan_.shape; }
  std::size_t numbers() const { return plan_.dense + plan_.shape.cells(); }

  // This rank's part; an error for values of another length or too large to be added.
  base::Result<SparsePart> encode(std::span<const std::int32_t> values, std::uint64_t seed) const;

  // The sum of all ranks' parts. `erased`: numbers that did not arrive, or of length 0 if all did.
  // An error where numbers and misses do not belong together, or not to this step.
  base::Result<SparseSum> decode(const SparsePart& sum, std::uint64_t seed,
                                 const Support& erased = {}) const;

  // To the next step; `sum` is what all ranks decoded.
  void advance(const SparseSum& sum);
  void reset();
  std::uint64_t fingerprint() const;

 private:
  struct Plan {
    Support predicted;
    std::size_t dense = 0;  // predicted.count()
    SketchShape shape;
  };

  SparseCode(std::size_t length, const SparseOptions& options);
  Plan next_plan() const;
  bool is_of_this_step(const SparsePart& sum) const;

  SparseOptions options_;
  SupportPredictor predictor_;
  bool has_history_ = false;
  std::size_t last_misses_ = 0;
  Plan plan_;
};

}  // namespace spillway::codec::sketch
