// SPDX-License-Identifier: Apache-2.0
//
// One step of a sketch (codec/sketch/sparse_code.h) as one row of whole numbers, so that code which
// adds whole numbers needs to know nothing of sketches. Three sections, one after another:
//
//   kDense    the values inside the prediction
//   kCells    the sketch of those outside, the misses
//   kCounts   for every place outside, how many ranks have a miss there: 0 or 1 from one rank. In
//             the sum, places that are not 0 are those of all ranks' misses
//
// Nearly all counts are 0, and coded they take next to nothing. Dense values and counts together
// are as many as the tensor has values; cells are fewer than what is outside. A step without a
// prediction is all dense.
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
  // For the code's next step. `seed`: the same at all ranks, another for every step.
  SketchFold(const codec::sketch::SparseCode& code, std::uint64_t seed);

  // Length of each section.
  const std::array<std::size_t, kFoldSections>& lengths() const { return lengths_; }
  std::size_t length() const { return lengths_[0] + lengths_[1] + lengths_[2]; }
  bool is_dense() const { return lengths_[1] + lengths_[2] == 0; }

  // Folds this rank's numbers; an error if they could not be added up.
  base::Result<std::vector<std::int32_t>> fold(std::span<const std::int32_t> numbers) const;
  // Turns the sum of all ranks' folds into sums of numbers. An error if no ranks' folds add up to
  // it.
  base::Result<codec::sketch::SparseSum> unfold(std::span<const std::int32_t> sums) const;

 private:
  const codec::sketch::SparseCode& code_;
  std::uint64_t seed_;
  std::array<std::size_t, kFoldSections> lengths_;
};

}  // namespace spillway::collective
