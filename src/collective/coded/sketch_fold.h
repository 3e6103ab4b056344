// SPDX-License-Identifier: Apache-2.0
//
// One step of a sketch (codec/sketch/sparse_code.h) as one row of whole numbers, so that whoever
// adds whole numbers needs to know nothing of sketches. Three sections, one behind another:
//
//   kDense    the values inside the prediction
//   kCells    the sketch of those outside, the misses
//   kCounts   for every place outside, how many ranks have a miss there: 0 or 1 of one rank. What
//             is not 0 in the sum is where the misses of all ranks are
//
// Nearly all counts are 0, and coded they take next to nothing. Dense values and counts are as
// many as the tensor has values; cells are fewer than what is outside. A step without a prediction
// is all dense.
//
// Pure; any thread. The code outlives it.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "codec/sketch/sparse_code.h"

namespace spillway::collective {

enum class FoldSection : std::uint8_t { kDense = 0, kCells = 1, kCounts = 2 };
inline constexpr std::size_t kFoldSections = 3;

class SketchFold {
 public:
  // Of the code's next step. `seed`: the same at all ranks, another for every step.
  SketchFold(const codec::sketch::SparseCode& code, std::uint64_t seed);

  // By section.
  const std::array<std::size_t, kFoldSections>& lengths() const { return lengths_; }
  std::size_t length() const { return lengths_[0] + lengths_[1] + lengths_[2]; }
  bool is_dense() const { return lengths_[1] + lengths_[2] == 0; }

  // This rank's numbers; an error for those that could not be added up.
  base::Result<std::vector<std::int32_t>> fold(std::span<const std::int32_t> numbers) const;
  // The sum of all ranks' folds, as sums of numbers. An error where no ranks' folds add up to it.
  base::Result<codec::sketch::SparseSum> unfold(std::span<const std::int32_t> sums) const;

 private:
  const codec::sketch::SparseCode& code_;
  std::uint64_t seed_;
  std::array<std::size_t, kFoldSections> lengths_;
};

}  // namespace spillway::collective
