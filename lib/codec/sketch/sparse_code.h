// SPDX-License-Identifier: Apache-2.0
//
// Sums of mostly-zero integer gradients, without sending the zeros and without first asking where
// they are (after OSCAR-SW, HPCA'26, as far as its abstract tells).
//
// All ranks predict the same support from the last sum (SupportPredictor). Each rank then sends
// a part:
//
//   numbers   the values inside the prediction, followed by the cells of a count sketch of the
//             misses, the non-zero values outside it. Any all-reduce of 32-bit integers adds parts
//             up; cells may wrap, values of the sum must not (count_sketch.h)
//   misses    the indices of the misses, or'ed over all ranks; as bytes by encode_support()
//
// The sum of parts decodes exactly: predicted values directly, misses by peeling. The sketch has
// room for `headroom_percent` of the last step's misses. SparseSum::unrecovered names the indices
// that it cannot recover or that did not arrive. The sum holds no rank's value there, so each rank
// adds its own to the next step. Such indices are predicted next time.
//
// A step that would not be shorter than the tensor goes densely, and so does the first. The second
// has room for as many misses as the first had values, because nothing is known yet. With entropy
// coding zeros cost little, so a sketch pays off less often; most_misses_percent and
// most_numbers_percent set the limits.
//
// Ranks need the same options, the same seed per step, and the same sums. fingerprint() detects a
// rank that advanced with another sum or missed a step; then all ranks must reset().
//
// One thread at a time for advance() and reset(); all else is const.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "codec/sketch/count_sketch.h"
#include "codec/sketch/support.h"

namespace spillway::codec::sketch {

// ------------------------------------------------------------------ prediction

// Predicts the non-zero values of the next reduced gradient from the last ones. All ranks hold the
// same sums, so they predict the same without a message.
//
//   kLast      indices where the last sum was not zero
//   kCounter   a counter from 0 to 3 per index goes up if the sum was not zero there, else down;
//              from 2 on it predicts non-zero. A single step does not change a settled prediction
//
// At the start everything is predicted: the first step goes densely and shows where values are.
enum class PredictionRule : std::uint8_t { kLast, kCounter };

// Ranks advance only with a sum that all of them hold. fingerprint() detects ranks that differ;
// then all must reset().
class SupportPredictor {
 public:
  SupportPredictor(std::size_t length, PredictionRule rule);

  const Support& predicted() const { return predicted_; }
  // Learns the non-zero indices of the last sum.
  void advance(const Support& nonzero);
  void reset();
  std::uint64_t fingerprint() const;

 private:
  PredictionRule rule_;
  Support predicted_;  // the counters' upper bits
  Support lower_;      // the counters' lower bits; empty for kLast
};

// ------------------------------------------------------------------ one step

struct SparseOptions {
  unsigned contributors = 1;  // ranks; each value is at most largest_number(contributors)
  PredictionRule rule = PredictionRule::kCounter;
  unsigned cells_percent = 130;     // cells per hundred keys, at least 130
  unsigned headroom_percent = 150;  // room of the sketch, relative to the last step's misses
  // If the last step's misses exceed this share of the predicted values, the next goes densely; 0:
  // no limit.
  unsigned most_misses_percent = 0;
  unsigned most_numbers_percent = 100;  // of the tensor's length; a longer step goes densely
};

// The part of one rank, or the sum of several.
struct SparsePart {
  std::vector<std::int32_t> numbers;
  Support misses;

  // Adds a part of the same step, as an all-reduce does.
  void add(const SparsePart& other);
};

struct SparseSum {
  std::vector<std::int32_t> values;  // zero where nothing was recovered
  Support unrecovered;
  std::size_t misses = 0;  // whether recovered or not
};

class SparseCode {
 public:
  // For tensors of up to kMaxSupportLength values.
  static base::Result<SparseCode> make(std::size_t length, const SparseOptions& options);

  // The plan of the next step, equal at all ranks.
  const Support& predicted() const { return plan_.predicted; }
  const SketchShape& shape() const { return plan_.shape; }
  std::size_t numbers() const { return plan_.dense + plan_.shape.cells(); }

  // This rank's part. Fails if the length is wrong or values are too large to be added.
  base::Result<SparsePart> encode(std::span<const std::int32_t> values, std::uint64_t seed) const;

  // The sum of all ranks' parts. `erased` marks numbers that did not arrive; it has length 0 if all
  // did. Fails if numbers and misses do not match each other or this step.
  base::Result<SparseSum> decode(const SparsePart& sum, std::uint64_t seed,
                                 const Support& erased = {}) const;

  // Advances to the next step; `sum` must be what all ranks decoded.
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
