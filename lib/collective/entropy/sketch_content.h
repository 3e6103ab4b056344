// SPDX-License-Identifier: Apache-2.0
//
// An entropy-coded all-reduce whose numbers are folded by a sketch (below): for tensors that are
// mostly zero and whose zeros mostly stay where they are.
//
// Ranks predict by what they remember of the tensor's last sums; the hellos tell whether they
// remember the same (code_cache.h). If they do not, or remember nothing, this step is dense:
// pieces are the tensor's own, as in PlainContent, and ranks begin to remember. The next step is
// dense, too, because nobody knows yet how good predictions are. So is every step after a bad
// prediction, every step of which more than half is predicted, and every step of a tensor without a
// name.
//
// Values that the sketch does not give back are in no rank's sum. Each rank is owed its own number
// there, or loses it if there is no error feedback; they are counted.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "codec/sketch/sparse_code.h"
#include "collective/entropy/entropy_content.h"

namespace spillway::collective {

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

class SketchContent final : public EntropyContent {
 public:
  // `last`: what all ranks remember, or null. `seed`: the operation's, the same at all ranks.
  SketchContent(TensorNumbers& tensor, std::shared_ptr<const codec::sketch::SparseCode> last,
                std::uint64_t seed);

  const BlockGrid& grid() const override { return grid_; }
  std::span<std::int32_t> numbers() override;
  codec::entropy::Alphabet alphabet(std::uint8_t section, std::uint16_t ranks) const override;
  bool is_like_values(std::uint8_t section) const override;
  std::size_t values_of(const ChunkPiece& piece) const override;

  void prepare(const BlockRun& blocks) override;
  void deliver(const BlockRun& blocks) override;
  bool has_fold() const override { return !fold_.is_dense(); }
  void fold() override;
  bool has_unfold() const override;
  base::Status unfold() override;
  void conclude(TensorCodes& codes, EntropyDelivery& report) override;

 private:
  bool is_named() const { return tensor_.operation.tolerance->feedback_tensor != 0; }
  void advance(const codec::sketch::SparseSum& sum);

  TensorNumbers& tensor_;
  PlainContent plain_;
  std::shared_ptr<const codec::sketch::SparseCode> code_;
  SketchFold fold_;
  BlockGrid grid_;
  std::vector<std::int32_t> folded_;
  SketchDelivery delivery_;
  RememberedSketch next_;
};

}  // namespace spillway::collective
